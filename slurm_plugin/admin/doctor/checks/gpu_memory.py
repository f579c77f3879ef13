"""Checks of `rad doctor` on GPU memory and type: rad.toml against each node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurm_plugin.admin.doctor.checks.gpu_types import check_gpu_types, types_of
from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, fail, warn
from slurm_plugin.admin.doctor.slurm_state import gpu_nodes, gpus_of, partitions, rad_toml, shards_of, sharing
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.units import from_mib, human, to_mib_down
from slurm_plugin.slurm.versions import traits


def check_gpu_memory(facts: Facts) -> Iterator[Finding]:
    """Check that a partition's GPUs have the memory and the type that rad.toml states, on each of its nodes."""
    known = partitions(facts)
    for name, partition in sharing(facts):
        nodes = gpu_nodes(facts, known.get(name, {}))
        if partition.gpus:
            yield from check_gpu_types(facts, name, partition, nodes)
            here = types_of(nodes[facts.node]) if facts.node in nodes else set()
            if len(here) == 1 and (kind := here.pop()) in partition.gpus:
                yield from _check_memory_here(facts, f"{name}.gpus.{kind}", partition.of_type(kind))
            continue
        yield from check_types(facts, name, partition, nodes)
        sizes = {node: shards_of(row) // gpus_of(row) for node, row in nodes.items() if shards_of(row)}
        yield from _check_sizes(facts, name, partition, sizes)
        if len(set(sizes.values())) < 2 and (facts.node in nodes or len(sharing(facts)) == 1):
            yield from _check_memory_here(facts, name, partition)


def check_kinds(facts: Facts) -> Iterator[Finding]:
    """Check the GPU types of every partition that shares and has no table for each type."""
    known = partitions(facts)
    for name, partition in sharing(facts):
        if not partition.gpus:
            yield from check_types(facts, name, partition, gpu_nodes(facts, known.get(name, {})))


def check_types(
    facts: Facts, name: str, partition: PartitionConfig, nodes: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Check GPU types: shards have none, so a request for one becomes shards only where rad.toml names it.

    Args:
        facts: The collected facts.
        name: The partition.
        partition: Its settings.
        nodes: Its nodes that have GPUs.
    """
    kinds = set[str]().union(*map(types_of, nodes.values()))
    types = sorted(kinds - {""})
    if types == [partition.gpu_type] or not types:
        return
    shown, table = ", ".join(types), f"partition.{name}"
    if partition.gpu_type in types:
        others = ", ".join(kind for kind in types if kind != partition.gpu_type)
        request = f"gpu:{partition.gpu_type}:1"
        text = f"partition {name} has GPUs of type {others} too, and by its shards {request} may land there"
        yield fail("rad.toml", text, rad_toml(facts, table, "gpu_type", '""'))
    elif partition.gpu_type:
        text = f"gpu_type of partition {name} is {partition.gpu_type!r}, and Slurm's is {shown}"
        right = types[0] if len(types) == 1 else ""
        yield fail("rad.toml", text, rad_toml(facts, table, "gpu_type", f'"{right}"'))
    elif kinds == set(types[:1]):
        text = f"partition {name} has no gpu_type: jobs that request gpu:{shown}:1 do not share"
        yield warn("rad.toml", text, rad_toml(facts, table, "gpu_type", f'"{shown}"'))
    elif len(types) > 1:
        text = f"partition {name} has GPUs of types {shown}, and rad.toml one size for all: {partition.shards} shards"
        words = "a table for each, with the memory of such a GPU (docs/admin/gpu-types.md):"
        rows = [f"[{table}.gpus.{kind}]\ngpu_memory_mib = ...\nshards_per_gpu = ..." for kind in types]
        yield warn("rad.toml", text, "\n".join([words, *rows]))


def _check_sizes(
    facts: Facts, name: str, partition: PartitionConfig, sizes: Mapping[str, int]
) -> Iterator[Finding]:
    """Check the number of shards per GPU, of which rad.toml has one per partition.

    Which number is right depends on how a whole GPU is requested. From 23.11.5 on that is `gpu:1`, which any GPU
    serves: the largest number is right, and shards send a job where it fits. Before, it is all shards of a GPU: with
    the largest number the smaller GPUs would get no such job.
    """
    if len(set(sizes.values())) < 2 or facts.version is None:
        return
    shown = ", ".join(f"{node} {shards}" for node, shards in list(sizes.items())[:4])
    problem = f"GPUs of partition {name} have different numbers of shards ({shown})"
    most = max(sizes.values())
    if not traits(facts.version).keeps_gpu_and_shard_apart:
        text = f"{problem}: a whole-GPU job on a larger one leaves shards free, and jobs started there are requeued"
        yield warn(
            "slurm.conf",
            text,
            "a partition for each size of GPU, or a table for each type in rad.toml, or Slurm 23.11.5 or later",
        )
    elif partition.shards < most:
        text = f"{problem}: a job that needs more than {partition.shards} is refused, or gets too small a GPU"
        fixes = [rad_toml(facts, f"partition.{name}", "shards_per_gpu", str(most))]
        if partition.gpu_memory_mib:
            memory_mib = str(max(partition.gpu_memory_mib, most * partition.shard_mib))
            fixes.append(rad_toml(facts, f"partition.{name}", "gpu_memory_mib", memory_mib))
        yield warn("rad.toml", text, tuple(fixes))


def _check_memory_here(facts: Facts, name: str, partition: PartitionConfig) -> Iterator[Finding]:
    """Check this node's GPU memory: a job that books what rad.toml states, but no GPU has, is requeued forever."""
    usable = [
        gpu.usable_bytes for gpu in facts.readings or () if gpu.healthy and not gpu.mig and gpu.usable_bytes
    ]
    if not usable or from_mib(partition.gpu_memory_mib) <= min(usable):
        return
    text = (
        f"partition {name} counts {human(from_mib(partition.gpu_memory_mib))} for a GPU, and one here has "
        f"{human(min(usable))}"
    )
    least = str(to_mib_down(min(usable)))
    yield fail("rad.toml", text, rad_toml(facts, f"partition.{name}", "gpu_memory_mib", least))
