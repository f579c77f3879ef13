"""Checks of `rad doctor` on gres.conf: shards against slurm.conf, rad.toml and GPU memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, Fix, fail, ok, unseen, warn
from slurm_plugin.admin.doctor.fixes import FixAction, LineChange, record
from slurm_plugin.admin.doctor.gres_lines import is_instance, missing_lines, shard_lines
from slurm_plugin.admin.doctor.slurm_state import (
    gpu_nodes,
    gpus_of,
    in_slurm_folder,
    nodes,
    partitions,
    rad_toml,
    row_of,
    shards_of,
    sharing,
)
from slurm_plugin.admin.own_files.values import UNSHARED_MIB, shards_within
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.units import human, to_mib_up
from slurm_plugin.slurm.files.conf_lines import expand

_MOST_UNUSED = 4 / 3
"""GPU memory over the memory of all its shards, above which the shards are taken to be larger ones of the site's."""


def shards_per_gpu(facts: Facts) -> dict[tuple[str, str], float]:
    """Return the shards of each GPU, by node name ("" for any) and device file ("" for evenly over all GPUs).

    A `Count` without `File` is spread over the GPUs of its node. With AutoDetect gres.conf does not state their number;
    it is then read from the node's Gres.
    """
    found: dict[tuple[str, str], float] = {}
    if facts.gres is None:
        return found
    files: dict[str, list[str]] = {}
    for line in facts.gres.lines:
        if line.get("name", "").lower() == "gpu" and not is_instance(line):
            for node in expand(line.get("nodename", "")):
                files.setdefault(node, []).extend(file for file in expand(line.get("file", "")) if file)
    with_gpus = {name: gpus_of(row) for name, row in nodes(facts).items() if gpus_of(row)}
    for line in facts.gres.lines:
        if line.get("name", "").lower() != "shard":
            continue
        count = count_of(parse_gres(f"shard:{line.get('count', '0')}"), "shard")
        for node in expand(line.get("nodename", "")):
            own = [file for file in expand(line.get("file", "")) if file]
            if own:
                found |= {(node, file): count / len(own) for file in own}
                continue
            here = files.get(node) or files.get("")
            if here:
                found[node, ""] = count / len(here)
                continue
            named = with_gpus if not node else {node: with_gpus[node]} if node in with_gpus else {}
            found |= {(name, ""): count / gpus for name, gpus in named.items()} or {(node, ""): count}
    return found


def check_gres(facts: Facts) -> Iterator[Finding]:
    """Check that GPUs have as many shards in gres.conf as rad.toml states, and no more than their memory holds."""
    if facts.slurm is None:
        return
    if facts.gres is None and facts.configless:  # sackd gets slurm.conf and cli_filter.lua (seen on 24.11.5)
        yield unseen("gres.conf", "slurmctld sends it to GPU nodes alone")
        return
    if facts.gres is None:
        yield fail("gres.conf", "not in the folder of slurm.conf", missing_lines(facts))
        return
    per_gpu = shards_per_gpu(facts)
    if not per_gpu:
        yield fail("gres.conf", "no shards", missing_lines(facts))
        return
    yield from _check_sums(facts)
    for name, partition in sharing(facts):
        if partition.gpus:
            continue  # each type has its own number: checks_gpu_types
        here = gpu_nodes(facts, partitions(facts).get(name, {}))
        counts = {count for (node, _), count in per_gpu.items() if not here or not node or node in here}
        if counts and partition.shards not in counts:
            have = ", ".join(f"{count:g}" for count in sorted(counts))
            text = f"GPUs have {have} shards, but partition.{name} in rad.toml counts {partition.shards}"
            yield fail("gres.conf", text, _as_counted(facts, name, partition, int(min(counts))))
        elif (size_mib := fitting_mib(partition, partition.shards)) != partition.shard_mib:
            text = f"{partition.shards} shards of {partition.shard_mib} MiB are not the memory of a GPU of {name}"
            text += ": jobs book other memory than they get"
            yield fail("rad.toml", text, rad_toml(facts, f"partition.{name}", "shard_mib", str(size_mib)))
    yield from _check_memory(facts, per_gpu)
    yield ok("gres.conf", f"{len(per_gpu)} entries with shards")


def _as_counted(facts: Facts, name: str, partition: PartitionConfig, shards: int) -> tuple[FixAction, ...]:
    """Return the changes of rad.toml that follow Slurm's number of shards, and their size if it is another one."""
    size_mib = fitting_mib(partition, shards)
    actions = [rad_toml(facts, f"partition.{name}", "shards_per_gpu", str(shards))]
    if size_mib != partition.shard_mib:
        after = replace(facts, config_text=actions[0].applied(facts.config_text))
        actions.append(rad_toml(after, f"partition.{name}", "shard_mib", str(size_mib)))
    return tuple(actions)


def fitting_mib(partition: PartitionConfig, shards: int) -> int:
    """Return the size of each of so many shards: as in rad.toml if they are most of a GPU then, else its part of it.

    Args:
        partition: The partition's settings.
        shards: Shards of one GPU.
    """
    memory_mib, shard_mib = partition.gpu_memory_mib, partition.shard_mib
    most = shards * shard_mib <= memory_mib <= _MOST_UNUSED * shards * shard_mib
    if not memory_mib or not shards or most or shards == shards_within(memory_mib, shard_mib):
        return shard_mib
    return memory_mib // shards


def check_mps_gres(facts: Facts) -> Iterator[Finding]:
    """Check that no node has both shards and Slurm's own mps: a GPU serves one kind at a time (gres.conf(5))."""
    both = [
        name
        for name, row in nodes(facts).items()
        if gpus_of(row) and {"mps", "shard"} <= {item.name for item in parse_gres(row.get("gres"))}
    ]
    if both:
        text = (
            f"{both[0]} has mps and shards: while jobs with mps use a GPU, no job shares it, and vice versa"
        )
        words = "where mps is not needed, remove it from GresTypes, the node's Gres and gres.conf"
        yield warn("gres.conf", text, f"{words}; RAD starts MPS by itself")


def _check_sums(facts: Facts) -> Iterator[Finding]:
    """Check the sums: slurmctld drains a node whose gres.conf has fewer shards than slurm.conf."""
    sums: dict[str, int] = {}
    for line in () if facts.gres is None else facts.gres.lines:
        if line.get("name", "").lower() == "shard":
            for node in filter(None, expand(line.get("nodename", ""))):
                one = count_of(parse_gres(f"shard:{line.get('count', '0')}"), "shard")
                sums[node] = sums.get(node, 0) + one
    without = [node for node, row in nodes(facts).items() if shards_of(row) and node not in sums]
    if facts.live is not None or _for_any_node(facts) or not set(sums) - {facts.node}:
        without = []  # slurmctld knows, or it is a node's local file
    if without:
        text = f"{without[0]} has shards in slurm.conf, and none here: slurmctld drains it"
        new = shard_lines(facts, without)
        words = "add Name=shard Count=... File=... for its GPUs"
        fix = LineChange(path=in_slurm_folder(facts, "gres.conf"), new="\n".join(new)) if new else words
        yield fail("gres.conf", text, fix)
    for node, row in nodes(facts).items():
        stated = shards_of(row)
        if stated and node in sums and sums[node] < stated:
            text = f"{node} has {sums[node]} shards here, and {stated} in slurm.conf: slurmctld drains it"
            wanted = re.sub(r"(shard(?::[^:,]+)*?:)\d+[KMGkmg]?", rf"\g<1>{sums[node]}", row.get("gres", ""))
            actions = row_of(facts, "nodename", node, "Gres", wanted)
            yield fail("gres.conf", text, actions or f"NodeName={node} ... Gres={wanted}")


def _for_any_node(facts: Facts) -> bool:
    """Return whether a line with shards names no node."""
    lines = () if facts.gres is None else facts.gres.lines
    return any(line.get("name", "").lower() == "shard" and "nodename" not in line for line in lines)


def _check_memory(facts: Facts, per_gpu: dict[tuple[str, str], float]) -> Iterator[Finding]:
    """Check that the memory that the shards promise exists."""
    if facts.config is None:
        return
    shard_mib = min(
        (partition.shard_mib for _, partition in sharing(facts)),
        default=facts.config.partition_defaults.shard_mib,
    )
    for reading in facts.readings or ():
        usable_mib = to_mib_up(reading.usable_bytes)
        counts = [
            count
            for (node, file), count in per_gpu.items()
            if file == f"/dev/nvidia{reading.index}"
            or (not file and (node in ("", facts.node) or len(facts.readings or ()) == 1))
        ]
        promised_mib = max(counts, default=0) * shard_mib
        if promised_mib <= usable_mib - (UNSHARED_MIB if _under_mps(facts) else 0) or not usable_mib:
            continue
        most = shards_within(usable_mib, shard_mib)
        words = f"{most} shards for each GPU: in gres.conf, in slurm.conf's Gres and as shards_per_gpu in rad.toml"
        fix: Fix = _fewer(facts, reading.index, most) or words
        if promised_mib > usable_mib:
            text = f"GPU {reading.index}: {max(counts):g} shards of {shard_mib} MiB, but {human(reading.usable_bytes)}"
            yield fail("gres.conf", f"{text} usable", fix)
        else:
            text = f"GPU {reading.index}: {max(counts):g} shards leave no memory for MPS servers and contexts"
            yield warn("gres.conf", f"{text}: jobs that book the last of them may be requeued", fix)


def _fewer(facts: Facts, gpu: int, most: int) -> tuple[FixAction, ...]:
    """Return the changes that reduce the shards of one GPU in all three files that state the number."""
    if facts.gres is None or facts.slurm is None:
        return ()
    for index, line in enumerate(facts.gres.lines):
        if line.get("name", "").lower() != "shard" or line.get("file") != f"/dev/nvidia{gpu}":
            continue
        actions: list[FixAction] = [
            record(facts.gres, index, in_slurm_folder(facts, "gres.conf"), "Count", str(most))
        ]
        less = int(line["count"]) - most if line.get("count", "").isdigit() else 0
        for node in expand(line.get("nodename", "")):
            row = nodes(facts).get(node, {})
            if shards_of(row) >= less:
                left = shards_of(row) - less
                wanted = re.sub(r"(shard(?::[^:,]+)*?:)\d+[KMGkmg]?", rf"\g<1>{left}", row.get("gres", ""))
                actions += row_of(facts, "nodename", node, "Gres", wanted)
        actions += [
            rad_toml(facts, f"partition.{name}", "shards_per_gpu", str(most))
            for name, partition in sharing(facts)
            if partition.shards > most
        ]
        return tuple(actions)
    return ()


def _under_mps(facts: Facts) -> bool:
    """Return whether jobs share these GPUs under MPS; simulated GPUs need no servers."""
    config = facts.config
    return (
        config is not None
        and config.features.mps
        and config.telemetry.source != "simulated"
        and any(partition.sharing == "mps" for _, partition in sharing(facts))
    )
