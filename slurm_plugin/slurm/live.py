"""What slurmctld itself says of its configuration, partitions and nodes, for `rad doctor` (scontrol(1))."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.shell import has_program, run
from slurm_plugin.slurm.conf_lines import pairs_of
from slurm_plugin.slurm.printed import parse_config

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A running slurmctld.

    Attributes:
        settings: `scontrol show config`, names in lower case.
        partitions: Name -> its properties, names in lower case.
        nodes: Name -> its properties, names in lower case.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def slurm_is_here() -> bool:
    """Return whether this machine has Slurm's programs."""
    return has_program("scontrol")


def ask_slurm(env: Mapping[str, str]) -> Live | None:
    """Return what slurmctld says; None if it does not answer in time.

    Args:
        env: Environment for scontrol.
    """

    def ask(*what: str) -> str:
        return run(["scontrol", "-o", "show", *what], timeout_s=_TIMEOUT_S, env=dict(env))

    try:
        settings = {name.lower(): value for name, value in parse_config(ask("config")).items()}
        return Live(
            settings=settings,
            partitions=_records(ask("partition"), "partitionname"),
            nodes=_records(ask("node"), "nodename"),
        )
    except CommandError:
        return None


def _records(text: str, name: str) -> dict[str, Mapping[str, str]]:
    r"""Return one record for each line.

    >>> _records("NodeName=n0 Gres=gpu:4,shard:156 OS=Linux 6.1\n", "nodename")["n0"]["gres"]
    'gpu:4,shard:156'
    """
    rows = (pairs_of(line) for line in text.splitlines())
    return {row[name]: row for row in rows if name in row}
