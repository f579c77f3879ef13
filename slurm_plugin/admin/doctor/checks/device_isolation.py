"""Checks of `rad doctor` on how whole-GPU and shared jobs are kept apart: device confinement and GPU types."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, fail, warn
from slurm_plugin.admin.doctor.fixes import FixAction, LineChange, record, setting
from slurm_plugin.admin.doctor.slurm_state import (
    in_slurm_folder,
    rad_toml,
    sharing,
)
from slurm_plugin.core.booking.gres_text import parse_gres
from slurm_plugin.slurm.versions import traits


def check_apart(facts: Facts) -> Iterator[Finding]:
    """Check that whole-GPU jobs avoid shared GPUs: an old Slurm may give one away; confined devices pin both kinds."""
    if facts.gres is None:
        return
    slurm = {} if facts.slurm is None else facts.slurm.settings
    cgroup = {} if facts.cgroup is None else facts.cgroup.settings
    constrained = cgroup.get("constraindevices", "no").lower() in ("yes", "true", "1")
    confined = constrained and "cgroup" in slurm.get("taskplugin", "").lower()
    if constrained and not confined:
        text = "ConstrainDevices=yes does nothing without TaskPlugin=task/cgroup"
        yield warn("cgroup.conf", text, _unconfined(facts))
    for name, partition in sharing(facts) if confined else ():
        if partition.pin == "bound":
            text = f'partition {name}: pin = "bound" may choose a GPU that cgroups keep from the job'
            yield fail("rad.toml", text, rad_toml(facts, f"partition.{name}", "pin", '"auto"'))
    if facts.version is None or traits(facts.version).keeps_gpu_and_shard_apart:
        return
    if confined:
        text = "this Slurm may give a GPU with shards in use to a whole-GPU job, and cgroups pin both to it"
        text += "; where that must stay, keep both kinds on different nodes, or upgrade to 23.11.5"
        yield fail("cgroup.conf", text, _unconfined(facts))
    elif not _gpus_have_topology(facts):
        text = "this Slurm gives a GPU with shards in use to a whole-GPU job, so the Prolog must requeue that job"
        words = (
            "Type=NAME on each GPU's line, and the same in slurm.conf (Gres=gpu:NAME:4,...): it is rare then"
        )
        yield warn("gres.conf", text, _typed(facts) or words)


def _unconfined(facts: Facts) -> LineChange:
    return setting(facts.cgroup, in_slurm_folder(facts, "cgroup.conf"), "ConstrainDevices", "no")


def _typed(facts: Facts) -> tuple[FixAction, ...]:
    """Return the changes that give GPUs a type in both files."""
    kind = next((partition.gpu_type for _, partition in sharing(facts) if partition.gpu_type), "gpu")
    actions: list[FixAction] = []
    for index, line in enumerate(() if facts.gres is None else facts.gres.lines):
        if line.get("name", "").lower() == "gpu" and facts.gres is not None:
            actions.append(record(facts.gres, index, in_slurm_folder(facts, "gres.conf"), "Type", kind))
    for index, line in enumerate(() if facts.slurm is None else facts.slurm.lines):
        if "gpu:" in line.get("gres", "") and not _is_typed(line["gres"]) and facts.slurm is not None:
            gres = re.sub(r"\bgpu:(?=\d+(?:,|$))", f"gpu:{kind}:", line["gres"])
            actions.append(record(facts.slurm, index, in_slurm_folder(facts, "slurm.conf"), "Gres", gres))
    return tuple(actions)


def _gpus_have_topology(facts: Facts) -> bool:
    """Return whether Slurm before 23.11.5 compares GPUs with shards: one GPU with a type or cores is enough for all.

    `CPUs` is the older name of `Cores` (gres.conf(5)).

    Even then Slurm counts a GPU as free as soon as one of the jobs that share it has ended (gres_ctld.c, _job_dealloc).

    A type counts only if slurm.conf names it too; otherwise slurmd drops it (seen on 22.05.8). Source:
    src/common/gres.c (_get_tot_gres_cnt) and src/plugins/select/cons_tres/gres_sched.c of Slurm 22.05.8.
    """
    if facts.gres is None or facts.slurm is None:
        return False
    detect = [facts.gres.settings.get("autodetect", "")]
    detect += [line.get("autodetect", "") for line in facts.gres.lines]
    gpus = [line for line in facts.gres.lines if line.get("name", "").lower() == "gpu"]
    typed = any("gpu:" in line.get("gres", "") and _is_typed(line["gres"]) for line in facts.slurm.lines)
    return any(("type" in line and typed) or line.keys() & {"cores", "cpus"} for line in gpus) or any(
        each.lower() not in ("", "off") for each in detect
    )


def _is_typed(gres: str) -> bool:
    return any(item.name == "gpu" and item.type for item in parse_gres(gres))
