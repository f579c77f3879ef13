"""Checks of `rad doctor` on partitions: rad.toml's settings, and Slurm settings that prevent sharing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, fail, ok, warn
from slurm_plugin.admin.doctor.fixes import FixAction, LineChange, command, record
from slurm_plugin.admin.doctor.slurm_state import (
    cpus_of,
    gpu_nodes,
    in_slurm_folder,
    members,
    nodes,
    partitions,
    rad_toml,
    row_of,
    settings,
    shards_of,
    sharing,
    slurm_conf,
    whole_gpus,
)
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.slurm.files.conf_lines import expand, lines_of

_UNLIMITED = ("", "unlimited", "0", "(null)", "none")


def check_names(facts: Facts) -> Iterator[Finding]:
    """Check that rad.toml names Slurm's partitions, including the default one."""
    known = partitions(facts)
    if facts.config is None or not known:
        return
    for name in facts.config.partitions:
        if name not in known:
            text = f"Slurm has no partition {name}: [partition.{name}] has no effect"
            yield fail("rad.toml", text, _renamed(facts, name, list(known)))
    default = next((name for name, row in known.items() if row.get("default", "").upper() == "YES"), None)
    configured = facts.config.default_partition
    if default and configured != default and (configured or default in facts.config.partitions):
        problem = f"default_partition is {configured!r}" if configured else "default_partition is not set"
        text = f"{problem}, but jobs that name no partition go to {default}"
        yield fail("rad.toml", text, rad_toml(facts, "", "default_partition", f'"{default}"'))


def _renamed(facts: Facts, name: str, known: list[str]) -> LineChange | str:
    config = facts.config
    free = [each for each in known if config is None or each not in config.partitions]
    lines = lines_of(facts.config_text)
    at = [
        n for n, line in enumerate(lines, 1) if re.match(rf"\s*\[partition\.\"?{re.escape(name)}\"?\]", line)
    ]
    nearest = difflib.get_close_matches(name, free, n=1, cutoff=0.0)
    if not at or not nearest:
        return "remove it, or name the intended partition"
    return LineChange(path=facts.config_path, first=at[0], count=1, new=f"[partition.{nearest[0]}]")


def check_partitions(facts: Facts) -> Iterator[Finding]:
    """Check that a partition with sharing allows several jobs on one node."""
    known = partitions(facts)
    for name, partition in sharing(facts):
        if name not in known:
            continue
        row = known[name]
        yield from _check_alone(facts, name, row)
        yield from _check_memory_default(facts, name, row)
        if facts.slurm is not None and nodes(facts) and not gpu_nodes(facts, row):
            if any("gpu" in node.get("gres", "") for node in members(facts, row).values()):
                text = f"partition {name} has MIG instances alone, which are not shared"
                words = f'no collocate in [partition.{name}]; mig = "map" chooses an instance by the estimate'
            else:
                text = f"partition {name} has no node with GPUs in its Gres: nothing is shared there"
                words = f"Gres=gpu:...,shard:... on its nodes, or no collocate in [partition.{name}]"
            yield fail("slurm.conf", text, words)
        yield from _check_others(facts, name, partition)


def _check_others(facts: Facts, name: str, partition: PartitionConfig) -> Iterator[Finding]:
    """Check which GPU a job gets on nodes that also serve a partition without sharing (`pin_of` in node/facts.py)."""
    known = partitions(facts)
    own = gpu_nodes(facts, known[name]).keys()
    managed = {each for each, _ in sharing(facts)}
    others = [each for each, row in known.items() if each not in managed and own & members(facts, row).keys()]
    if not others:
        return
    text = f"partition {name} has nodes in common with {', '.join(others)}, where jobs share no GPU"
    if partition.pin == "bound":
        text += '; pin = "bound" may move a shared job to a GPU that Slurm gives to a job there'
        yield warn("rad.toml", text, rad_toml(facts, f"partition.{name}", "pin", '"auto"'))
    else:
        yield ok("partitions", f"{text}: on these nodes each job stays on the GPU that Slurm chose")


def _check_alone(facts: Facts, name: str, row: Mapping[str, str]) -> Iterator[Finding]:
    key = "Shared" if "shared" in row else "OverSubscribe"
    if row.get(key.lower(), "").upper().startswith("EXCLUSIVE"):
        text = f"partition {name}: {key}=EXCLUSIVE gives each job whole nodes, so nothing is shared"
        yield fail("slurm.conf", text, row_of(facts, "partitionname", name, key, "NO"))


def _check_memory_default(facts: Facts, name: str, row: Mapping[str, str]) -> Iterator[Finding]:
    running = settings(facts)
    counted = running.get("selecttypeparameters", "").lower()
    if counted not in _UNLIMITED and "memory" not in counted:
        return  # with none of them cons_tres counts memory
    defaults = [each.get(key, "") for each in (row, running) for key in ("defmempercpu", "defmempernode")]
    if any(text.lower() not in _UNLIMITED for text in defaults):
        return
    text = f"partition {name} has no DefMemPerCPU: a job without --mem takes all memory of its node"
    each = [
        int(node["realmemory"]) // cpus
        for node in gpu_nodes(facts, row).values()
        if node.get("realmemory", "").isdigit() and (cpus := cpus_of(node))
    ]
    fix: LineChange | str = "DefMemPerCPU=... in slurm.conf: a node's memory over its CPUs"
    yield warn("slurm.conf", text, slurm_conf(facts, "DefMemPerCPU", str(min(each))) if each else fix)


def check_nodes(facts: Facts) -> Iterator[Finding]:
    """Check that nodes with GPUs have shards in a partition with sharing; else no shared job can start on them."""
    known = partitions(facts)
    reported: set[str] = set()
    for name, partition in sharing(facts):
        found = gpu_nodes(facts, known.get(name, {}))
        bare = [node for node, row in found.items() if not shards_of(row)]
        if bare and facts.slurm is not None:
            more = f" (and {len(bare) - 1} more)" if len(bare) > 1 else ""
            gres = found[bare[0]].get("gres", "")
            text = f"{bare[0]}{more} of partition {name} has Gres={gres}: no shared job can start there"
            changes = {
                str(action): action for action in _shards_for(facts, partition, found, bare)
            }  # one line names many nodes
            words = f"add the shards of all its GPUs: Gres={_with_shards(partition, found[bare[0]])}"
            fix: tuple[FixAction, ...] | str = tuple(changes.values()) or words
            yield (fail if len(bare) == len(found) else warn)("slurm.conf", text, fix)
        for node, row in found.items():
            reason = row.get("reason", "")
            if "DRAIN" in row.get("state", "") and reason.startswith("gres/") and node not in reported:
                reported.add(node)
                text = f"{node} is drained ({reason}): its gres.conf lists less than slurm.conf"
                yield fail("slurm.conf", text, command(f"scontrol update NodeName={node} State=RESUME"))


def _shards_for(
    facts: Facts, partition: PartitionConfig, found: Mapping[str, Mapping[str, str]], bare: Sequence[str]
) -> Iterator[FixAction]:
    """Return the changes that give nodes the shards of all their GPUs, line by line."""
    lacking = set(bare)
    for index, row in enumerate(() if facts.slurm is None else facts.slurm.lines):
        here = [node for node in expand(row.get("nodename", "")) if node in lacking]
        if here and facts.slurm is not None:
            wanted = _with_shards(partition, found[here[0]])
            yield record(facts.slurm, index, in_slurm_folder(facts, "slurm.conf"), "Gres", wanted)


def _with_shards(partition: PartitionConfig, row: Mapping[str, str]) -> str:
    """Return a node's Gres with the shards of all its GPUs: of each type where rad.toml has a table for all of them."""
    gpus, shards = whole_gpus(row), dict[str, int]()
    typed = {item.type for item in gpus} <= set(partition.gpus)
    for item in gpus:
        kind = item.type or ""
        name = f"shard:{kind}" if typed else "shard"
        shards[name] = shards.get(name, 0) + item.count * partition.of_type(kind).shards
    return ",".join([row.get("gres", ""), *(f"{name}:{count}" for name, count in shards.items())])
