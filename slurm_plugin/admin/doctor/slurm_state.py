"""Slurm's state as far as known: from slurmctld if it answers, else from slurm.conf."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.fixes import FixAction, LineChange, command, record, setting, toml
from slurm_plugin.core.booking.gres_text import count_of, is_mig, parse_gres
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.records.submission import GresItem
from slurm_plugin.slurm.files.conf_lines import ConfLine, expand

RESTART = command("systemctl restart slurmctld")


def settings(facts: Facts) -> Mapping[str, str]:
    """Return Slurm's settings, names in lower case."""
    if facts.live is not None:
        return facts.live.settings
    return {} if facts.slurm is None else facts.slurm.settings


def sharing(facts: Facts) -> list[tuple[str, PartitionConfig]]:
    """Return the partitions that share GPUs according to rad.toml."""
    partitions = {} if facts.config is None else facts.config.partitions
    return [(name, partition) for name, partition in partitions.items() if partition.collocate]


def partitions(facts: Facts) -> dict[str, Mapping[str, str]]:
    """Return each partition and its properties, names in lower case."""
    if facts.live is not None:
        return dict(facts.live.partitions)
    return _lines_by_name(facts, lambda line: (line.get("partitionname", ""),))


def nodes(facts: Facts) -> dict[str, Mapping[str, str]]:
    """Return each node and its properties, names in lower case."""
    if facts.live is not None:
        return dict(facts.live.nodes)
    return _lines_by_name(facts, lambda line: expand(line.get("nodename", "")))


def _lines_by_name(
    facts: Facts, names_of: Callable[[Mapping[str, str]], Iterable[str]]
) -> dict[str, Mapping[str, str]]:
    """Return what slurm.conf's lines define; a line named DEFAULT completes those after it."""
    found: dict[str, Mapping[str, str]] = {}
    default: Mapping[str, str] = {}
    for line in () if facts.slurm is None else facts.slurm.lines:
        for name in names_of(line):
            if name.upper() == "DEFAULT":
                default = {**default, **line}
            elif name:
                found[name] = {**default, **line}
    return found


def gpus_of(row: Mapping[str, str]) -> int:
    """Return the GPUs of a node that can have shards: MIG instances have none."""
    return count_of(whole_gpus(row), "gpu")


def whole_gpus(row: Mapping[str, str]) -> tuple[GresItem, ...]:
    """Return the GPUs of a node, by type, without MIG instances."""
    return tuple(item for item in parse_gres(row.get("gres")) if item.name == "gpu" and not is_mig(item))


def cpus_of(row: Mapping[str, str]) -> int:
    """Return the CPUs of a node, as slurmctld reports them or as slurm.conf has them; 0 if unknown.

    Without `CPUs` they are the product of sockets, cores and threads (slurm.conf(5)).

    >>> cpus_of({"sockets": "2", "corespersocket": "16", "threadspercore": "2"}), cpus_of({"cpus": "8"}), cpus_of({})
    (64, 8, 0)
    """
    for name in ("cputot", "cpus", "procs"):
        if row.get(name, "").isdigit():
            return int(row[name])
    sockets = int(row.get("boards", "1")) * int(row["socketsperboard"]) if "socketsperboard" in row else 0
    sockets = sockets or int(row.get("sockets", "0"))
    cores, threads = int(row.get("corespersocket", "1")), int(row.get("threadspercore", "1"))
    return sockets * cores * threads


def shards_of(row: Mapping[str, str]) -> int:
    """Return the shards of a node."""
    return count_of(parse_gres(row.get("gres")), "shard")


def gpu_nodes(facts: Facts, partition: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """Return the nodes of a partition that have GPUs.

    Args:
        facts: The collected facts.
        partition: The partition's properties, from `partitions`.
    """
    return {name: row for name, row in members(facts, partition).items() if gpus_of(row)}


def members(facts: Facts, partition: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """Return the nodes of a partition, also those that it names by NodeSets.

    Args:
        facts: The collected facts.
        partition: The partition's properties, from `partitions`.
    """
    known = nodes(facts)
    named = _members(facts, partition.get("nodes", ""), known)
    return {name: row for name, row in known.items() if name in named}


def _members(facts: Facts, names: str, known: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Return the nodes that a list of nodes and NodeSets stands for; "ALL" is every node (slurm.conf(5))."""
    found = {name for name in expand(names) if name}
    for row in () if facts.slurm is None else facts.slurm.lines:
        if row.get("nodeset", "") in found - {""}:
            found |= set(expand(row.get("nodes", "")))
            found |= {name for name, node in known.items() if row.get("feature") in _features(node)}
    return set(known) if "ALL" in {name.upper() for name in found} else found


def _features(node: Mapping[str, str]) -> list[str]:
    texts = (node.get(key, "") for key in ("feature", "features", "availablefeatures"))
    return [feature.strip() for text in texts for feature in text.split(",")]


def slurm_conf(facts: Facts, name: str, value: str) -> FixAction:
    """Return the change that sets a setting in slurm.conf, or slurmctld's restart where it is made already.

    Args:
        facts: The collected facts.
        name: The setting, as Slurm spells it.
        value: Its new value.
    """
    change = setting(facts.slurm, facts.slurm_conf_path or Path("slurm.conf"), name, value)
    return _unless_done(change, None if facts.slurm is None else facts.slurm.settings_at.get(name.lower()))


def in_slurm_folder(facts: Facts, name: str) -> Path:
    """Return the path of a file next to slurm.conf.

    Args:
        facts: The collected facts.
        name: The file's name.
    """
    return (facts.slurm_conf_path or Path("slurm.conf")).with_name(name)


def rad_toml(facts: Facts, table: str, key: str, value: str) -> LineChange:
    """Return the change that sets a key in rad.toml.

    Args:
        facts: The collected facts.
        table: "features", "partition.gpu"; "" for the top.
        key: The key.
        value: Its new value as TOML spells it.
    """
    return toml(facts.config_text, facts.config_path, table, key, value)


def row_of(facts: Facts, kind: str, name: str, key: str, value: str) -> tuple[FixAction, ...]:
    """Return the change of a node's or partition's line in slurm.conf, as `slurm_conf` does; empty if it has none.

    Args:
        facts: The collected facts.
        kind: "nodename" or "partitionname".
        name: The node or partition.
        key: The property, as Slurm spells it.
        value: Its new value.
    """
    for index, row in enumerate(() if facts.slurm is None else facts.slurm.lines):
        if name in expand(row.get(kind, "")) and facts.slurm is not None:
            change = record(facts.slurm, index, in_slurm_folder(facts, "slurm.conf"), key, value)
            at = facts.slurm.lines_at[index] if index < len(facts.slurm.lines_at) else None
            return (_unless_done(change, at),)
    return ()


def _unless_done(change: LineChange, at: ConfLine | None) -> FixAction:
    """Return a change, or slurmctld's restart if its lines stand there and slurmctld does not run with them yet."""
    return RESTART if at is not None and at.raw == change.new else change
