"""The checks of `rad doctor` on the GPUs' side: shards against memory, cgroups, telemetry, MPS."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_plugin.admin.edits import Change, Deed, command, record, setting
from slurm_plugin.admin.facts import Facts
from slurm_plugin.admin.finding import Finding, Fix, fail, ok, unseen, warn
from slurm_plugin.admin.install_values import UNSHARED_MIB, shards_within
from slurm_plugin.admin.seen import (
    beside,
    gpu_nodes,
    gpus_of,
    nodes,
    partitions,
    rad_toml,
    row_of,
    shards_of,
    sharing,
    slurm_conf,
)
from slurm_plugin.core.gres import count_of, parse_gres
from slurm_plugin.core.units import human, to_mib_up
from slurm_plugin.slurm.conf_lines import expand
from slurm_plugin.slurm.versions import traits


def shards_per_gpu(facts: Facts) -> dict[tuple[str, str], float]:
    """Return the shards of each GPU, by node name ("" for any) and device file ("" for evenly over all GPUs).

    A `Count` without `File` is spread over the GPUs of its node, and how many these are gres.conf does not say where
    Slurm finds them (AutoDetect): then the node's Gres does.
    """
    found: dict[tuple[str, str], float] = {}
    if facts.gres is None:
        return found
    files: dict[str, list[str]] = {}
    for line in facts.gres.lines:
        if line.get("name", "").lower() == "gpu":
            for node in expand(line.get("nodename", "")):
                files.setdefault(node, []).extend(file for file in expand(line.get("file", "")) if file)
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
            named = {name: row for name, row in nodes(facts).items() if gpus_of(row) and node in ("", name)}
            found |= {(name, ""): count / gpus_of(row) for name, row in named.items()} or {(node, ""): count}
    return found


def check_gres(facts: Facts) -> Iterator[Finding]:
    """gres.conf: GPUs have shards, as many as rad.toml says, and no more than their memory holds."""
    if facts.slurm is None:
        return
    if facts.gres is None:
        yield fail("gres.conf", "not beside slurm.conf", _whole_file(facts))
        return
    per_gpu = shards_per_gpu(facts)
    if not per_gpu:
        yield fail("gres.conf", "no shards", _whole_file(facts))
        return
    yield from _check_sums(facts)
    for name, partition in sharing(facts):
        here = gpu_nodes(facts, partitions(facts).get(name, {}))
        counts = {count for (node, _), count in per_gpu.items() if not here or not node or node in here}
        if counts and partition.shards not in counts:
            have = ", ".join(f"{count:g}" for count in sorted(counts))
            text = f"GPUs have {have} shards, but partition.{name} in rad.toml counts {partition.shards}"
            least = str(int(min(counts)))
            yield fail("gres.conf", text, rad_toml(facts, f"partition.{name}", "shards_per_gpu", least))
    yield from _check_memory(facts, per_gpu)
    yield from _check_confinement(facts)
    yield ok("gres.conf", f"{len(per_gpu)} entries with shards")


def _whole_file(facts: Facts) -> Fix:
    """Return the lines of gres.conf that are missing; words where the devices are not known."""
    each = next((partition.shards for _, partition in sharing(facts)), 0)
    real = facts.config is not None and facts.config.telemetry.source != "simulated"
    devices = [f"/dev/nvidia{gpu.index}" for gpu in facts.readings or () if real and not gpu.mig]
    known = facts.gres.lines if facts.gres is not None else ()
    lines = [line for line in known if line.get("name", "").lower() == "gpu" and line.get("file")]
    new = []
    for line in lines:
        node = f"NodeName={line['nodename']} " if "nodename" in line else ""
        new += [f"{node}Name=shard Count={each} File={file}" for file in expand(line["file"])]
    if not known:
        for file in devices:
            new += [f"Name=gpu File={file}", f"Name=shard Count={each} File={file}"]
    if not new or not each:
        return "add Name=shard Count=... File=... for every GPU: see gres_conf/gres.conf"
    return Change(path=beside(facts, "gres.conf"), new="\n".join(new))


def _check_sums(facts: Facts) -> Iterator[Finding]:
    """A node whose gres.conf has fewer shards than slurm.conf says is drained by slurmctld."""
    sums: dict[str, int] = {}
    for line in () if facts.gres is None else facts.gres.lines:
        if line.get("name", "").lower() == "shard":
            for node in filter(None, expand(line.get("nodename", ""))):
                one = count_of(parse_gres(f"shard:{line.get('count', '0')}"), "shard")
                sums[node] = sums.get(node, 0) + one
    for node, row in nodes(facts).items():
        said = shards_of(row)
        if said and node in sums and sums[node] < said:
            text = f"{node} has {sums[node]} shards here, and {said} in slurm.conf: slurmctld drains it"
            wanted = re.sub(r"(shard(?::[^:,]+)*?:)\d+[KMGkmg]?", rf"\g<1>{sums[node]}", row.get("gres", ""))
            deeds = row_of(facts, "nodename", node, "Gres", wanted)
            yield fail("gres.conf", text, deeds or f"NodeName={node} ... Gres={wanted}")


def _check_memory(facts: Facts, per_gpu: dict[tuple[str, str], float]) -> Iterator[Finding]:
    """A shard is a promise of memory: what is promised must be there, or be given back by jobs that do not need it."""
    if facts.config is None or any(partition.trim for _, partition in sharing(facts)):
        return
    shard_mib = min(
        (partition.shard_mib for _, partition in sharing(facts)),
        default=facts.config.partition_defaults.shard_mib,
    )
    for reading in facts.readings or ():
        usable_mib = to_mib_up(reading.usable_bytes)
        counts = [
            count
            for (_, file), count in per_gpu.items()
            if file == f"/dev/nvidia{reading.index}" or (not file and len(facts.readings or ()) == 1)
        ]
        promised_mib = max(counts, default=0) * shard_mib
        if promised_mib <= usable_mib - (UNSHARED_MIB if _under_mps(facts) else 0) or not usable_mib:
            continue
        most = shards_within(usable_mib, shard_mib)
        fix = _fewer(facts, reading.index, most) or f"Count={most} for File=/dev/nvidia{reading.index}"
        if promised_mib > usable_mib:
            text = f"GPU {reading.index}: {max(counts):g} shards of {shard_mib} MiB, but {human(reading.usable_bytes)}"
            yield fail("gres.conf", f"{text} usable", fix)
        else:
            text = f"GPU {reading.index}: {max(counts):g} shards leave no room for MPS servers and contexts"
            yield warn("gres.conf", f"{text}: jobs that book the last of them may be put back", fix)


def _fewer(facts: Facts, gpu: int, most: int) -> tuple[Deed, ...]:
    """Return the changes that give one GPU fewer shards, in all three files that say how many there are."""
    if facts.gres is None or facts.slurm is None:
        return ()
    for index, line in enumerate(facts.gres.lines):
        if line.get("name", "").lower() != "shard" or line.get("file") != f"/dev/nvidia{gpu}":
            continue
        deeds: list[Deed] = [record(facts.gres, index, beside(facts, "gres.conf"), "Count", str(most))]
        less = int(line["count"]) - most if line.get("count", "").isdigit() else 0
        for node in expand(line.get("nodename", "")):
            row = nodes(facts).get(node, {})
            if shards_of(row) >= less:
                left = shards_of(row) - less
                wanted = re.sub(r"(shard(?::[^:,]+)*?:)\d+[KMGkmg]?", rf"\g<1>{left}", row.get("gres", ""))
                deeds += row_of(facts, "nodename", node, "Gres", wanted)
        deeds += [
            rad_toml(facts, f"partition.{name}", "shards_per_gpu", str(most))
            for name, partition in sharing(facts)
            if partition.shards > most
        ]
        return tuple(deeds)
    return ()


def _under_mps(facts: Facts) -> bool:
    """Return whether jobs share these GPUs under MPS; simulated ones need no servers."""
    config = facts.config
    return (
        config is not None
        and config.features.mps
        and config.telemetry.source != "simulated"
        and any(partition.sharing == "mps" for _, partition in sharing(facts))
    )


def _check_confinement(facts: Facts) -> Iterator[Finding]:
    """An old Slurm can give a GPU with shards in use away as a whole; where devices are confined, both are pinned."""
    slurm = {} if facts.slurm is None else facts.slurm.settings
    cgroup = {} if facts.cgroup is None else facts.cgroup.settings
    constrained = cgroup.get("constraindevices", "no").lower() in ("yes", "true", "1")
    confined = constrained and "cgroup" in slurm.get("taskplugin", "").lower()
    if constrained and not confined:
        text = "ConstrainDevices=yes does nothing without TaskPlugin=task/cgroup"
        yield warn("cgroup.conf", text, _unconfined(facts))
    if facts.version is None or traits(facts.version).keeps_gpu_and_shard_apart:
        return
    if confined:
        text = "this Slurm may give a GPU with shards in use to a whole-GPU job, and cgroups pin both to it"
        text += "; where that must stay, keep both kinds on different nodes, or upgrade to 23.11.5"
        yield fail("cgroup.conf", text, _unconfined(facts))
    elif not _gpus_have_topology(facts):
        text = "this Slurm gives a GPU with shards in use to a whole-GPU job, and the Prolog must put that job back"
        words = (
            "Type=NAME on each GPU's line, and the same in slurm.conf (Gres=gpu:NAME:4,...): it is rare then"
        )
        yield warn("gres.conf", text, _typed(facts) or words)


def _unconfined(facts: Facts) -> Change:
    return setting(facts.cgroup, beside(facts, "cgroup.conf"), "ConstrainDevices", "no")


def _typed(facts: Facts) -> tuple[Deed, ...]:
    """Return the changes that give GPUs a type in both files."""
    kind = next((partition.gpu_type for _, partition in sharing(facts) if partition.gpu_type), "gpu")
    deeds: list[Deed] = []
    for index, line in enumerate(() if facts.gres is None else facts.gres.lines):
        if line.get("name", "").lower() == "gpu" and facts.gres is not None:
            deeds.append(record(facts.gres, index, beside(facts, "gres.conf"), "Type", kind))
    for index, line in enumerate(() if facts.slurm is None else facts.slurm.lines):
        if "gpu:" in line.get("gres", "") and not _is_typed(line["gres"]) and facts.slurm is not None:
            gres = re.sub(r"\bgpu:(?=\d+(?:,|$))", f"gpu:{kind}:", line["gres"])
            deeds.append(record(facts.slurm, index, beside(facts, "slurm.conf"), "Gres", gres))
    return tuple(deeds)


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
        yield warn("rad-monitor", text, command("systemctl enable --now rad-monitor"))


def check_mps(facts: Facts) -> Iterator[Finding]:
    """Where sharing is by MPS, its control program must be there."""
    wanting = [name for name, partition in sharing(facts) if partition.sharing == "mps"]
    simulated = facts.config is not None and facts.config.telemetry.source == "simulated"
    if not wanting or not facts.gpu_node or simulated:
        return
    if facts.mps_control is None:
        text = "nvidia-cuda-mps-control is missing: shared jobs run in time slices, and nothing caps their memory"
        fixes = tuple(rad_toml(facts, f"partition.{name}", "sharing", '"streams"') for name in wanting)
        yield warn("MPS", f"{text}; it comes with the driver, or say so", fixes)
    else:
        yield ok("MPS", facts.mps_control)
    yield from _check_pipes(facts)


def check_guard(facts: Facts) -> Iterator[Finding]:
    """What a job takes and did not book can be ended only where its processes can be told."""
    if facts.config is None or not sharing(facts) or not facts.gpu_node:
        return
    for name, partition in sharing(facts):
        if not facts.config.features.guard or partition.on_overrun == "warn":
            text = (
                f"jobs of partition {name} that take more GPU memory than they booked are named, not stopped"
            )
            fixes: list[Deed] = []
            if not facts.config.features.guard:
                fixes.append(rad_toml(facts, "features", "guard", "true"))
            if partition.on_overrun == "warn":
                fixes.append(rad_toml(facts, f"partition.{name}", "on_overrun", '"requeue"'))
            yield warn("guard", text, tuple(fixes))
    tracking = "" if facts.slurm is None else facts.slurm.settings.get("proctracktype", "")
    if tracking and "cgroup" not in tracking.lower():
        text = f"ProctrackType={tracking}: a process that leaves its job's tree is nobody's, for Slurm and for us"
        yield warn("guard", text, slurm_conf(facts, "ProctrackType", "proctrack/cgroup"))
    exclusive = [index for index, mode in facts.compute_modes.items() if mode == "Exclusive_Process"]
    if exclusive and any(partition.sharing == "streams" for _, partition in sharing(facts)):
        gpus = ", ".join(str(index) for index in exclusive)
        text = f"GPU {gpus} takes one process at a time, and jobs are to share in time slices"
        yield fail("guard", text, command(f"nvidia-smi -i {','.join(map(str, exclusive))} -c DEFAULT"))


def _check_pipes(facts: Facts) -> Iterator[Finding]:
    """Where MPS pipes lie, one user can be let in and others kept out."""
    if facts.acls is False:
        text = "the file system of paths.run has no access control lists: shared jobs run without MPS, without caps"
        yield fail("MPS", f"{text}; a tmpfs has them", rad_toml(facts, "paths", "run", '"/run/rad"'))
