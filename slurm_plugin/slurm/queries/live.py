"""Configuration, partitions and nodes as slurmctld reports them, for `rad doctor` (scontrol(1))."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import has_program, run
from slurm_plugin.slurm.files.conf_files import away_s
from slurm_plugin.slurm.files.conf_lines import pairs_of
from slurm_plugin.slurm.queries.columns import lines
from slurm_plugin.slurm.queries.printed import parse_config, silent_controllers

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A running slurmctld.

    Attributes:
        settings: `scontrol show config`, names in lower case.
        partitions: Name -> its properties, names in lower case.
        nodes: Name -> its properties, names in lower case.
        silent: Machines of slurm.conf where slurmctld does not answer, while another one does.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    silent: tuple[str, ...] = ()


def slurm_is_here() -> bool:
    """Return whether this machine has Slurm's programs."""
    return has_program("scontrol")


def ask_slurm(env: Mapping[str, str]) -> Live | None:
    """Return slurmctld's answers; None if it does not answer in time.

    Args:
        env: Environment for scontrol.
    """
    conf = env.get("SLURM_CONF")
    # The command that shows the configuration also pings each slurmctld.
    timeout_s = _TIMEOUT_S + 2 * away_s(Path(conf) if conf else None)

    def ask(*what: str) -> str:
        return run(["scontrol", "-o", "show", *what], timeout_s=timeout_s, env=dict(env))

    try:
        config = ask("config")
        return Live(
            settings={name.lower(): value for name, value in parse_config(config).items()},
            partitions=_records(ask("partition"), "partitionname"),
            nodes=_records(ask("node"), "nodename"),
            silent=silent_controllers(config),
        )
    except CommandError:
        return None


def _records(text: str, name: str) -> dict[str, Mapping[str, str]]:
    r"""Return one record for each line.

    >>> _records("NodeName=n0 Gres=gpu:4,shard:156 OS=Linux 6.1\n", "nodename")["n0"]["gres"]
    'gpu:4,shard:156'
    """
    rows = (pairs_of(line) for line in lines(text))
    return {row[name]: row for row in rows if name in row}
