"""Checks of `rad doctor` on a GPU node: driver, monitor, MPS, guard."""

from __future__ import annotations

import os
from collections.abc import Iterator

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, fail, ok, unseen, warn
from slurm_plugin.admin.doctor.fixes import FixAction, command
from slurm_plugin.admin.doctor.slurm_state import (
    rad_toml,
    sharing,
    slurm_conf,
)
from slurm_plugin.admin.server_choices import CHOICES, others
from slurm_plugin.core.units import human
from slurm_plugin.mps.daemon import LONGEST_RUN_FOLDER
from slurm_plugin.slurm.files.conf_files import enforces_accounts


def check_gpus(facts: Facts) -> Iterator[Finding]:
    """Check that the driver answers and reports SM activity, and that the monitor runs."""
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
        yield ok("rad-monitor", "writes current samples")
    else:
        text = (
            "no recent samples: the guard does not act, jobs without an enforced limit get no new neighbour, "
            "and no job's peak is known"
        )
        yield warn("rad-monitor", text, command("systemctl enable --now rad-monitor"))


def check_mps(facts: Facts) -> Iterator[Finding]:
    """Check that the MPS control program is installed where sharing is by MPS."""
    wanting = [name for name, partition in sharing(facts) if partition.sharing == "mps"]
    simulated = facts.config is not None and facts.config.telemetry.source == "simulated"
    if not wanting or not facts.gpu_node or simulated:
        return
    if facts.mps_control is None:
        text = "nvidia-cuda-mps-control is missing: shared jobs run by time slicing, without an enforced memory limit"
        fixes = tuple(rad_toml(facts, f"partition.{name}", "sharing", '"streams"') for name in wanting)
        yield warn("MPS", f"{text}; it comes with the driver; without it, configure time slicing", fixes)
    else:
        yield ok("MPS", facts.mps_control)
    yield from _check_pipes(facts)


def check_servers(facts: Facts) -> Iterator[Finding]:
    """Say which jobs share an MPS server, and what another choice would bring."""
    accounts = facts.slurm is not None and enforces_accounts(facts.slurm.settings)
    for name, partition in sharing(facts):
        if partition.sharing != "mps" or partition.one_user_per_gpu:
            continue
        chosen = partition.mps_server
        if chosen == "account" and facts.slurm is not None and not accounts:
            text = f'mps_server = "account" in partition {name} is as "user": Slurm does not check accounts'
            yield warn("MPS servers", text, slurm_conf(facts, "AccountingStorageEnforce", "associations"))
            continue
        text = f'partition {name}, mps_server = "{chosen}": {CHOICES[chosen]}; {others(chosen, accounts=accounts)}'
        yield ok("MPS servers", text)


def check_guard(facts: Facts) -> Iterator[Finding]:
    """Check that the guard can act: an overrun can be stopped only where the job's processes can be identified."""
    if facts.config is None or not sharing(facts) or not facts.gpu_node:
        return
    for name, partition in sharing(facts):
        if not facts.config.features.guard or partition.on_overrun == "warn":
            text = f"jobs of partition {name} that use more GPU memory than they booked are reported, not stopped"
            fixes: list[FixAction] = []
            if not facts.config.features.guard:
                fixes.append(rad_toml(facts, "features", "guard", "true"))
            if partition.on_overrun == "warn":
                fixes.append(rad_toml(facts, f"partition.{name}", "on_overrun", '"requeue"'))
            yield warn("guard", text, tuple(fixes))
    tracking = "" if facts.slurm is None else facts.slurm.settings.get("proctracktype", "")
    if tracking and "cgroup" not in tracking.lower():
        text = f"ProctrackType={tracking}: a process that leaves its job's process tree counts for no job"
        yield warn("guard", text, slurm_conf(facts, "ProctrackType", "proctrack/cgroup"))
    yield from _check_compute_modes(facts)


def _check_compute_modes(facts: Facts) -> Iterator[Finding]:
    """Check compute modes: a GPU for one process serves one user's MPS server; without MPS, one job (nvidia-smi(1))."""
    closed = _gpus_in(facts, "Prohibited")
    if closed:
        text = (
            f"GPU {', '.join(closed)} accepts no process (compute mode PROHIBITED), and jobs are placed there"
        )
        yield fail("compute mode", text, command(f"nvidia-smi -i {','.join(closed)} -c DEFAULT"))
    exclusive = _gpus_in(facts, "Exclusive_Process")
    default = command(f"nvidia-smi -i {','.join(exclusive)} -c DEFAULT")
    gpus = f"GPU {', '.join(exclusive)} accepts one process at a time"
    for name, partition in sharing(facts) if exclusive else ():
        if partition.sharing == "streams":
            yield fail("compute mode", f"{gpus}, and jobs of partition {name} share by time slicing", default)
        elif not partition.one_user_per_gpu:
            text = f"{gpus}, so one user's MPS server: in partition {name} a second user's job on it fails"
            fix = rad_toml(facts, f"partition.{name}", "one_user_per_gpu", "true")
            yield fail("compute mode", text, fix)


def _gpus_in(facts: Facts, mode: str) -> list[str]:
    return [str(index) for index, found in facts.compute_modes.items() if found == mode]


def _check_pipes(facts: Facts) -> Iterator[Finding]:
    """Check that the folder of the MPS pipes allows access for single users, and that its sockets' paths fit."""
    if facts.acls is False:
        text = (
            "the file system of paths.run has no access control lists: "
            "shared jobs run without MPS and without enforced limits"
        )
        yield fail("MPS", f"{text}; a tmpfs has them", rad_toml(facts, "paths", "run", '"/run/rad"'))
    run = "" if facts.config is None else facts.config.paths.run
    if len(os.fsencode(run)) > LONGEST_RUN_FOLDER:
        text = (
            f"paths.run = {run!r} is too long for the sockets of MPS, which lie under it: "
            "shared jobs may run without MPS and without enforced limits"
        )
        fix = rad_toml(facts, "paths", "run", '"/run/rad"')
        yield fail("MPS", f"{text}; at most {LONGEST_RUN_FOLDER} bytes", fix)
