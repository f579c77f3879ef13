"""Generate missing lines of gres.conf: shards of GPUs that it names or that Slurm detects (AutoDetect)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Fix
from slurm_plugin.admin.doctor.fixes import LineChange
from slurm_plugin.admin.doctor.slurm_state import (
    gpu_nodes,
    gpus_of,
    in_slurm_folder,
    nodes,
    partitions,
    shards_of,
    sharing,
    whole_gpus,
)
from slurm_plugin.core.booking.gres_text import is_mig, parse_gres
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.slurm.files.conf_lines import expand


def missing_lines(facts: Facts) -> Fix:
    """Return the missing lines of gres.conf, or a description if the devices are not known."""
    each = next((partition.shards for _, partition in sharing(facts)), 0)
    real = facts.config is not None and facts.config.telemetry.source != "simulated"
    devices = [f"/dev/nvidia{gpu.index}" for gpu in facts.readings or () if real and not gpu.mig]
    known = facts.gres.lines if facts.gres is not None else ()
    sharers = _partition_of(facts)
    missing = {name for name, row in nodes(facts).items() if shards_of(row) or name in sharers}
    new = shard_lines(facts, missing)
    if not known and not new:
        for file in devices:
            new += [f"Name=gpu File={file}", f"Name=shard Count={each} File={file}"]
    if not new or not each:
        return "add Name=shard Count=... File=... for every GPU: see gres_conf/gres.conf"
    return LineChange(path=in_slurm_folder(facts, "gres.conf"), new="\n".join(new))


def shard_lines(facts: Facts, missing: Collection[str]) -> list[str]:
    """Return lines with the shards of nodes, per device, or per node where Slurm detects its GPUs.

    Args:
        facts: The collected facts.
        missing: The nodes.
    """
    if facts.gres is None:
        return []
    new, done, sharers, known = [], set[str](), _partition_of(facts), nodes(facts)
    for line in facts.gres.lines:
        if line.get("name", "").lower() != "gpu" or not line.get("file") or is_instance(line):
            continue
        here = [name for name in expand(line.get("nodename", "")) if not name or name in missing]
        for file in expand(line["file"]) if here else ():
            whole = len(here) == len(expand(line.get("nodename", "")))
            named = line.get("nodename", "") if whole else ",".join(here)
            count = _shards_there(facts, sharers.get(here[0]), line.get("type", ""))
            new.append(f"{f'NodeName={named} ' if named else ''}Name=shard Count={count} File={file}")
        done.update(here)
    detect = [facts.gres.settings.get("autodetect", "")]
    detect += [line["autodetect"] for line in facts.gres.lines if "autodetect" in line]
    if "" in done or all(each.lower() in ("", "off") for each in detect):
        return new
    for row in () if facts.slurm is None else facts.slurm.lines:
        here = [name for name in expand(row.get("nodename", "")) if name in missing and name not in done]
        if here and gpus_of(known[here[0]]):
            whole = len(here) == len(expand(row["nodename"]))
            if _has_instances(known[here[0]]):
                continue  # Slurm would spread a count without devices over the MIG instances, too
            count = sum(
                item.count * _shards_there(facts, sharers.get(here[0]), item.type or "")
                for item in whole_gpus(known[here[0]])
            )
            named = row["nodename"] if whole else ",".join(here)
            new.append(f"NodeName={named} Name=shard Count={count}")
    return new


def is_instance(line: Mapping[str, str]) -> bool:
    """Return whether a line of gres.conf is about MIG instances: by type, or by the devices of their capabilities."""
    typed = any(is_mig(item) for item in parse_gres(f"gpu:{line.get('type', '')}:1"))
    return typed or "multiplefiles" in line or "nvidia-cap" in line.get("file", "")


def _has_instances(row: Mapping[str, str]) -> bool:
    return any(item.name == "gpu" and is_mig(item) for item in parse_gres(row.get("gres")))


def _partition_of(facts: Facts) -> dict[str, PartitionConfig]:
    """Return node -> partition settings for nodes with shared GPUs; the first partition if there are several."""
    known = partitions(facts)
    found: dict[str, PartitionConfig] = {}
    for name, partition in sharing(facts):
        for node in gpu_nodes(facts, known.get(name, {})):
            found.setdefault(node, partition)
    return found


def _shards_there(facts: Facts, partition: PartitionConfig | None, kind: str) -> int:
    """Return the shards of a GPU type in a partition; for None, in the first partition that shares."""
    of = partition or next((each for _, each in sharing(facts)), None)
    return of.of_type(kind).shards if of else 0
