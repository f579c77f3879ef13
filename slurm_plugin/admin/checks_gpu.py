"""The checks of `rad doctor` on the GPUs' side: shards against memory, cgroups, telemetry, MPS."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_plugin.admin.facts import Facts
from slurm_plugin.admin.finding import Finding, fail, ok, unseen, warn
from slurm_plugin.admin.install_values import UNSHARED_MIB, shards_within
from slurm_plugin.core.config import PartitionConfig
from slurm_plugin.core.gres import count_of, parse_gres
from slurm_plugin.core.units import human, to_mib_up
from slurm_plugin.slurm.conf_lines import expand
from slurm_plugin.slurm.versions import traits


def shards_per_gpu(facts: Facts) -> dict[tuple[str, str], float]:
    """Return the shards of each GPU, by node name ("" for any) and device file ("" for evenly over all GPUs)."""
    found: dict[tuple[str, str], float] = {}
    if facts.gres is None:
        return found
    gpus: dict[str, list[str]] = {}
    for line in facts.gres.lines:
        if line.get("name", "").lower() == "gpu":
            for node in expand(line.get("nodename", "")):
                gpus.setdefault(node, []).extend(expand(line.get("file", "")))
    for line in facts.gres.lines:
        if line.get("name", "").lower() != "shard":
            continue
        count = int(line["count"]) if line.get("count", "").isdigit() else 0
        for node in expand(line.get("nodename", "")):
            files = [file for file in expand(line.get("file", "")) if file]
            if files:
                found |= {(node, file): count / len(files) for file in files}
            else:
                found[node, ""] = count / max(1, len(gpus.get(node, [])))
    return found


def check_nodes(facts: Facts) -> Iterator[Finding]:
    """slurm.conf: nodes with GPUs in a partition that shares have shards too, or no shared job can start on them."""
    if facts.slurm is None:
        return
    gres = {
        node: line["gres"].lower()
        for line in facts.slurm.lines
        for node in expand(line.get("nodename", ""))
        if "gpu" in line.get("gres", "").lower()
    }
    for line in facts.slurm.lines:
        partition = dict(_sharing(facts)).get(line.get("partitionname", ""))
        if partition is None:
            continue
        named = expand(line.get("nodes", ""))
        nodes = [node for node in gres if node in named or "ALL" in named]
        bare = [node for node in nodes if "shard:" not in gres[node]]
        if bare:
            has = gres[bare[0]]
            text = f"{bare[0]} of partition {line['partitionname']} has Gres={has}: no shared job can start there"
            shards = max(1, count_of(parse_gres(has), "gpu")) * partition.shards
            fix = f"add the shards of all its GPUs, for example Gres={has},shard:{shards}"
            yield (fail if bare == nodes else warn)("slurm.conf", text, fix)


def check_gres(facts: Facts) -> Iterator[Finding]:
    """gres.conf: GPUs have shards, as many as rad.toml says, and no more than their memory holds."""
    if facts.slurm is None:
        return
    if facts.gres is None:
        yield fail("gres.conf", "not beside slurm.conf", "see gres_conf/gres.conf for one line per GPU")
        return
    per_gpu = shards_per_gpu(facts)
    if not per_gpu:
        yield fail("gres.conf", "no shards", "add Name=shard Count=... File=... for every GPU")
        return
    for name, partition in _sharing(facts):
        counts = {count for count in per_gpu.values() if count != partition.shards}
        if len(counts) == len(set(per_gpu.values())):
            have = ", ".join(f"{count:g}" for count in sorted(set(per_gpu.values())))
            text = f"GPUs have {have} shards, but partition.{name} in rad.toml counts {partition.shards}"
            yield fail("gres.conf", text, f"set shards_per_gpu in [partition.{name}] to the smallest of them")
    yield from _check_memory(facts, per_gpu)
    yield from _check_confinement(facts)
    yield ok("gres.conf", f"{len(per_gpu)} entries with shards")


def _check_memory(facts: Facts, per_gpu: dict[tuple[str, str], float]) -> Iterator[Finding]:
    """A shard is a promise of memory: what is promised must be there, or be given back by jobs that do not need it."""
    if facts.config is None or any(partition.trim for _, partition in _sharing(facts)):
        return
    shard_mib = min(
        (partition.shard_mib for _, partition in _sharing(facts)),
        default=facts.config.partition_defaults.shard_mib,
    )
    for reading in facts.readings or ():
        counts = [
            count
            for (_, file), count in per_gpu.items()
            if file == f"/dev/nvidia{reading.index}" or (not file and len(facts.readings or ()) == 1)
        ]
        promised_mib = max(counts, default=0) * shard_mib
        if promised_mib > to_mib_up(reading.usable_bytes) and reading.usable_bytes:
            most = shards_within(to_mib_up(reading.usable_bytes), shard_mib)
            text = f"GPU {reading.index}: {max(counts):g} shards of {shard_mib} MiB, but {human(reading.usable_bytes)}"
            yield fail("gres.conf", f"{text} usable", f"Count={most} for File=/dev/nvidia{reading.index}")
        elif promised_mib > to_mib_up(reading.usable_bytes) - UNSHARED_MIB and _under_mps(facts):
            most = shards_within(to_mib_up(reading.usable_bytes), shard_mib)
            text = f"GPU {reading.index}: {max(counts):g} shards leave no room for MPS servers and contexts"
            fix = f"Count={most} for File=/dev/nvidia{reading.index}, and shards_per_gpu in rad.toml"
            yield warn("gres.conf", f"{text}: jobs that book the last of them may be put back", fix)


def _under_mps(facts: Facts) -> bool:
    """Return whether jobs share these GPUs under MPS; simulated ones need no servers."""
    config = facts.config
    return (
        config is not None
        and config.features.mps
        and config.telemetry.source != "simulated"
        and any(partition.sharing == "mps" for _, partition in _sharing(facts))
    )


def _check_confinement(facts: Facts) -> Iterator[Finding]:
    """An old Slurm can give a GPU with shards in use away as a whole; where devices are confined, both are pinned."""
    slurm = {} if facts.slurm is None else facts.slurm.settings
    cgroup = {} if facts.cgroup is None else facts.cgroup.settings
    constrained = cgroup.get("constraindevices", "no").lower() in ("yes", "true", "1")
    confined = constrained and "cgroup" in slurm.get("taskplugin", "").lower()
    if constrained and not confined:
        text = "ConstrainDevices=yes does nothing without TaskPlugin=task/cgroup"
        yield warn("cgroup.conf", text, "TaskPlugin=task/cgroup,task/affinity, or remove ConstrainDevices")
    if facts.version is None or traits(facts.version).keeps_gpu_and_shard_apart:
        return
    if confined:
        text = "this Slurm may give a GPU with shards in use to a whole-GPU job, and cgroups pin both to it"
        fix = "keep shared and whole-GPU jobs on different nodes, set ConstrainDevices=no, or upgrade to 23.11.5"
        yield fail("cgroup.conf", text, fix)
    elif not _gpus_have_topology(facts):
        text = "this Slurm gives a GPU with shards in use to a whole-GPU job, and the Prolog must put that job back"
        fix = (
            "Type=NAME on each GPU's line, and the same in slurm.conf (Gres=gpu:NAME:4,...): it is rare then"
        )
        yield warn("gres.conf", text, fix)


def _gpus_have_topology(facts: Facts) -> bool:
    """Return whether Slurm before 23.11.5 compares GPUs with shards: where one has a type or cores, it does for all.

    Even then it takes a GPU for free as soon as one of the jobs that share it has ended (gres_ctld.c, _job_dealloc).

    A type counts only if slurm.conf names it too: else slurmd drops it (seen on 22.05.8). Source: src/common/gres.c
    (_get_tot_gres_cnt) and src/plugins/select/cons_tres/gres_sched.c of Slurm 22.05.8.
    """
    if facts.gres is None or facts.slurm is None:
        return False
    detect = [facts.gres.settings.get("autodetect", "")]
    detect += [line.get("autodetect", "") for line in facts.gres.lines]
    gpus = [line for line in facts.gres.lines if line.get("name", "").lower() == "gpu"]
    typed = any("gpu:" in line.get("gres", "") and _is_typed(line["gres"]) for line in facts.slurm.lines)
    return any(("type" in line and typed) or "cores" in line for line in gpus) or any(
        each.lower() not in ("", "off") for each in detect
    )


def _is_typed(gres: str) -> bool:
    return any(item.name == "gpu" and item.type for item in parse_gres(gres))


def check_gpus(facts: Facts) -> Iterator[Finding]:
    """The driver answers, tells SM activity, and the monitor runs."""
    if not facts.gpu_node:
        yield unseen("GPUs", "none on this machine; run rad doctor on a GPU node too")
        return
    if facts.readings is None:
        yield fail("GPUs", facts.readings_error, "nvidia-smi must work first")
        return
    for reading in facts.readings:
        subject = f"GPU {reading.index}"
        if not reading.healthy:
            yield fail(
                subject, f"{reading.uuid} needs a reset or is lost", "nvidia-smi -q -i " + reading.uuid
            )
        elif reading.mig:
            yield ok(subject, f"{reading.name}, MIG: never shared")
        elif reading.smact_source in (None, "nvml-utilisation"):
            text = f"{reading.name}: only utilisation is known, which calls one busy block a full GPU"
            yield warn(subject, text, "before Hopper: install DCGM and run: systemctl start nvidia-dcgm")
        else:
            usable = human(reading.usable_bytes)
            yield ok(subject, f"{reading.name}, {usable} usable, SMACT from {reading.smact_source}")
    if facts.monitored:
        yield ok("rad-monitor", "writes its window")
    else:
        text = "no fresh window: the Prolog takes two samples of its own, and no job's peak is known"
        yield warn("rad-monitor", text, "systemctl enable --now rad-monitor")


def check_mps(facts: Facts) -> Iterator[Finding]:
    """Where sharing is by MPS, its control program must be there."""
    wanting = [name for name, partition in _sharing(facts) if partition.sharing == "mps"]
    simulated = facts.config is not None and facts.config.telemetry.source == "simulated"
    if not wanting or not facts.gpu_node or simulated:
        return
    if facts.mps_control is None:
        text = "nvidia-cuda-mps-control is missing: shared jobs run in time slices, and nothing caps their memory"
        yield warn("MPS", text, 'install it with the driver, or set sharing = "streams"')
    else:
        yield ok("MPS", facts.mps_control)
    yield from _check_pipes(facts)


def check_guard(facts: Facts) -> Iterator[Finding]:
    """What a job takes and did not book can be ended only where its processes can be told."""
    if facts.config is None or not _sharing(facts) or not facts.gpu_node:
        return
    for name, partition in _sharing(facts):
        if not facts.config.features.guard or partition.on_overrun == "warn":
            text = (
                f"jobs of partition {name} that take more GPU memory than they booked are named, not stopped"
            )
            yield warn("guard", text, 'set on_overrun = "requeue" and [features] guard = true')
    tracking = "" if facts.slurm is None else facts.slurm.settings.get("proctracktype", "")
    if tracking and "cgroup" not in tracking.lower():
        text = f"ProctrackType={tracking}: a process that leaves its job's tree is nobody's, for Slurm and for us"
        yield warn("guard", text, "ProctrackType=proctrack/cgroup")
    exclusive = [index for index, mode in facts.compute_modes.items() if mode == "Exclusive_Process"]
    if exclusive and any(partition.sharing == "streams" for _, partition in _sharing(facts)):
        gpus = ", ".join(str(index) for index in exclusive)
        text = f"GPU {gpus} takes one process at a time, and jobs are to share in time slices"
        yield fail("guard", text, 'sharing = "mps", or nvidia-smi -c DEFAULT')


def _check_pipes(facts: Facts) -> Iterator[Finding]:
    """Where MPS pipes lie, one user can be let in and others kept out."""
    if facts.acls is False:
        text = "the file system of paths.run has no access control lists: shared jobs run without MPS, without caps"
        yield fail("MPS", text, "put paths.run on a tmpfs, such as /run/rad")


def _sharing(facts: Facts) -> list[tuple[str, PartitionConfig]]:
    partitions = {} if facts.config is None else facts.config.partitions
    return [(name, partition) for name, partition in partitions.items() if partition.collocate]
