"""Slurm's state as far as known: from slurmctld if it answers, else from slurm.conf."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.fixes import Change, FixAction, record, setting, toml
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.slurm.files.conf_lines import expand


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
    found: dict[str, Mapping[str, str]] = {}
    default: Mapping[str, str] = {}
    for row in () if facts.slurm is None else facts.slurm.lines:
        name = row.get("partitionname", "")
        if name.upper() == "DEFAULT":
            default = {**default, **row}
        elif name:
            found[name] = {**default, **row}
    return found


def nodes(facts: Facts) -> dict[str, Mapping[str, str]]:
    """Return each node and its properties, names in lower case."""
    if facts.live is not None:
        return dict(facts.live.nodes)
    found: dict[str, Mapping[str, str]] = {}
    default: Mapping[str, str] = {}
    for row in () if facts.slurm is None else facts.slurm.lines:
        for name in expand(row.get("nodename", "")):
            if name.upper() == "DEFAULT":
                default = {**default, **row}
            elif name:
                found[name] = {**default, **row}
    return found


def gpus_of(row: Mapping[str, str]) -> int:
    """Return the GPUs of a node."""
    return count_of(parse_gres(row.get("gres")), "gpu")


def shards_of(row: Mapping[str, str]) -> int:
    """Return the shards of a node."""
    return count_of(parse_gres(row.get("gres")), "shard")


def gpu_nodes(facts: Facts, partition: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """Return the nodes of a partition that have GPUs.

    Args:
        facts: The collected facts.
        partition: The partition's properties, from `partitions`.
    """
    named = set(expand(partition.get("nodes", "")))
    return {
        name: row for name, row in nodes(facts).items() if gpus_of(row) and (name in named or "ALL" in named)
    }


def slurm_conf(facts: Facts, name: str, value: str) -> Change:
    """Return the change that sets a setting in slurm.conf.

    Args:
        facts: The collected facts.
        name: The setting, as Slurm spells it.
        value: Its new value.
    """
    return setting(facts.slurm, facts.slurm_conf_path or Path("slurm.conf"), name, value)


def in_slurm_folder(facts: Facts, name: str) -> Path:
    """Return the path of a file next to slurm.conf.

    Args:
        facts: The collected facts.
        name: The file's name.
    """
    return (facts.slurm_conf_path or Path("slurm.conf")).with_name(name)


def rad_toml(facts: Facts, table: str, key: str, value: str) -> Change:
    """Return the change that sets a key in rad.toml.

    Args:
        facts: The collected facts.
        table: "features", "partition.gpu"; "" for the top.
        key: The key.
        value: Its new value as TOML spells it.
    """
    return toml(facts.config_text, facts.config_path, table, key, value)


def row_of(facts: Facts, kind: str, name: str, key: str, value: str) -> tuple[FixAction, ...]:
    """Return the change of a node's or partition's line in slurm.conf; empty if it has none.

    Args:
        facts: The collected facts.
        kind: "nodename" or "partitionname".
        name: The node or partition.
        key: The property, as Slurm spells it.
        value: Its new value.
    """
    for index, row in enumerate(() if facts.slurm is None else facts.slurm.lines):
        if name in expand(row.get(kind, "")) and facts.slurm is not None:
            return (record(facts.slurm, index, in_slurm_folder(facts, "slurm.conf"), key, value),)
    return ()
