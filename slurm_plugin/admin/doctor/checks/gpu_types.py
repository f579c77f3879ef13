"""Checks of `rad doctor` on partitions with several GPU types: rad.toml's tables against Slurm's nodes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, fail, warn
from slurm_plugin.admin.doctor.slurm_state import gpus_of, nodes, rad_toml, row_of, shards_of, whole_gpus
from slurm_plugin.core.booking.gres_text import parse_gres
from slurm_plugin.core.config.load import PartitionConfig


def types_of(row: Mapping[str, str]) -> set[str]:
    """Return the types of a node's GPUs, without MIG instances; "" for GPUs without a type."""
    return {item.type or "" for item in whole_gpus(row)}


def check_gpu_types(
    facts: Facts, name: str, partition: PartitionConfig, found: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Check that each GPU type has a table with its shards, and that slurm.conf names the type at the shards.

    Args:
        facts: The collected facts.
        name: The partition.
        partition: Its settings.
        found: Its nodes that have GPUs.
    """
    kinds = {node: types_of(row) for node, row in found.items()}
    known = set[str]().union(*kinds.values())
    if known:
        for missing in sorted(set(partition.gpus) - known):
            shown = ", ".join(sorted(filter(None, known))) or "none with a type"
            text = f"partition {name} has a table for GPUs of type {missing}, and Slurm's are: {shown}"
            yield fail("rad.toml", text, "the type as scontrol show node prints it (Gres=gpu:TYPE:4)")
    reported: set[str] = set()
    for node, types in kinds.items():
        (kind, *more), each = sorted(types), shards_of(found[node]) // gpus_of(found[node])
        if more or not each or kind in reported:
            continue  # with several types on a node, Slurm does not report the number of each
        table = f"partition.{name}.gpus.{kind}"
        size = next((size for size in partition.sizes if size.type == kind), None)
        if kind and size is None:
            reported.add(kind)
            text = f"partition {name} has GPUs of type {kind} ({node}) without a table: jobs that name it do not share"
            yield warn("rad.toml", text, rad_toml(facts, table, "shards_per_gpu", str(each)))
        elif size is not None and size.shards != each:
            reported.add(kind)
            text = f"GPUs of {node} have {each} shards, and {table} in rad.toml counts {size.shards}"
            where = table if kind else f"partition.{name}"
            yield fail("rad.toml", text, rad_toml(facts, where, "shards_per_gpu", str(each)))
    yield from _check_named(facts, partition, found)


def _check_named(
    facts: Facts, partition: PartitionConfig, found: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Check that shards have a type in slurm.conf: slurmctld shows one anyway, but without it the jobs' srun fails."""
    written = nodes(dataclasses.replace(facts, live=None))
    for node in found:
        gres = written.get(node, {}).get("gres", "")
        kinds = types_of({"gres": gres}) & set(partition.gpus)
        bare = [item for item in parse_gres(gres) if item.name == "shard" and item.type is None]
        if bare and len(kinds) == 1:
            (kind,) = kinds
            text = f"{node} has shards without a type on GPUs of type {kind}: no job that names it could run srun"
            wanted = re.sub(r"\bshard:(?=\d)", f"shard:{kind}:", gres)
            actions = row_of(facts, "nodename", node, "Gres", wanted)
            yield fail("slurm.conf", text, actions or f"NodeName={node} ... Gres={wanted}")
            return  # the line may cover all of them
