"""Run all checks of `rad doctor`, pure functions of the collected facts. Here: rad.toml, version, controller."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from gpumemnet.records import names_of
from slurm_plugin.admin.doctor.checks.device_isolation import check_apart
from slurm_plugin.admin.doctor.checks.gpu_memory import check_gpu_memory
from slurm_plugin.admin.doctor.checks.gpu_node import check_gpus, check_guard, check_mps, check_servers
from slurm_plugin.admin.doctor.checks.gres_conf import check_gres, check_mps_gres
from slurm_plugin.admin.doctor.checks.learn import check_learn
from slurm_plugin.admin.doctor.checks.limits import check_limits
from slurm_plugin.admin.doctor.checks.lua import check_lua
from slurm_plugin.admin.doctor.checks.partitions import check_names, check_nodes, check_partitions
from slurm_plugin.admin.doctor.checks.slurm_conf import check_hooks, check_slurm_conf
from slurm_plugin.admin.doctor.checks.slurmd_detected import check_detected
from slurm_plugin.admin.doctor.checks.standby import check_standby
from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, Fix, fail, ok, unseen, warn
from slurm_plugin.admin.doctor.fixes import LineChange, command
from slurm_plugin.admin.doctor.slurm_state import (
    gpu_nodes,
    gpus_of,
    in_slurm_folder,
    partitions,
    rad_toml,
    shards_of,
    sharing,
)
from slurm_plugin.core.config.in_use import differs
from slurm_plugin.core.config.last_good import copy_of
from slurm_plugin.core.config.load import Features
from slurm_plugin.slurm.files.conf_lines import lines_of
from slurm_plugin.slurm.versions import NEWEST, OLDEST, known, release_of, written

_UNKNOWN = re.compile(r"unknown key (\S+); did you mean (\S+)\?")
_WRONG = re.compile(r": (\S+) is .*; it must ")


def examine(facts: Facts) -> list[Finding]:
    """Return the findings of every check."""
    found = [finding for check in _CHECKS for finding in check(facts)]
    return [_at_the_source(facts, finding) for finding in found] if facts.configless else found


def _at_the_source(facts: Facts, finding: Finding) -> Finding:
    """Return a finding with its fix moved to the source: slurmctld overwrites what is changed on this machine."""
    here = in_slurm_folder(facts, "slurm.conf")
    if not any(
        isinstance(action, LineChange) and action.path.is_relative_to(here.parent)
        for action in finding.actions
    ):
        return finding
    lines = [
        f"{action.path.name}: {action.new}" if isinstance(action, LineChange) else str(action)
        for action in finding.actions
    ]
    words = "on the controller, where the originals are, then scontrol reconfigure:"
    return replace(finding, fix="\n".join([words, *lines]), actions=())


def check_config(facts: Facts) -> Iterator[Finding]:
    """Check that rad.toml is readable, each key is known, and at least one partition shares GPUs."""
    subject = "rad.toml"
    if facts.config is None:
        yield fail(subject, facts.config_error, _fixed(facts))
        return
    if facts.config.mode != "enforce":
        text = f"mode is {facts.config.mode!r}: nothing is changed"
        yield warn(subject, text, rad_toml(facts, "", "mode", '"enforce"'))
    if not facts.config_readable:
        text = "users cannot read it, so sbatch reads no model summary and rad-estimate does not work"
        yield warn(subject, text, command(f"chmod 644 {facts.config_path}"))
    if not facts.config_copied:
        text = f"no copy of it is kept at {copy_of(facts.config_path)}, for when it is broken"
        yield warn(subject, text, "run rad doctor as root; a GPU node's hooks keep one with each job")
    names = [name for name, _ in sharing(facts)]
    if not names:
        yield warn(subject, "no partition shares GPUs", _a_partition(facts))
    else:
        yield ok(subject, f"{facts.config_path}: sharing in {', '.join(names)}")
    usual = Features()
    for name in names_of(usual):
        if getattr(usual, name) and not getattr(facts.config.features, name):
            yield warn(subject, f"switched off: {name}", rad_toml(facts, "features", name, "true"))


def _fixed(facts: Facts) -> Fix:
    """Return the fix for an invalid rad.toml: the key that was meant, or the default."""
    if "names no partition" in facts.config_error:
        return _a_partition(facts)
    if found := _UNKNOWN.search(facts.config_error):
        (table, _, old), new = found[1].rpartition("."), found[2].rpartition(".")[2]
        change = rad_toml(facts, table, old, "")
        line = _line(facts, change)
        return replace(change, new=line.replace(old, new, 1)) if line else "correct the key that is named"
    if found := _WRONG.search(facts.config_error):
        table, _, key = found[1].rpartition(".")
        for place in (table, "partition_defaults"):  # a partition's value may also stand there
            change = rad_toml(facts, place, key, "")
            if line := _line(facts, change):
                return replace(change, new=f"#{line}")
    return "correct what is named"


def _line(facts: Facts, change: LineChange) -> str:
    return lines_of(facts.config_text)[change.first - 1] if change.count else ""


def _a_partition(facts: Facts) -> Fix:
    """Return the lines for the first partition that could share, as reported by Slurm."""
    for name, row in partitions(facts).items():
        ready = [node for node in gpu_nodes(facts, row).values() if shards_of(node)]
        if ready:
            if facts.config is not None and name in facts.config.partitions:
                return rad_toml(facts, f"partition.{name}", "collocate", "true")
            each = min(shards_of(node) // gpus_of(node) for node in ready)
            new = f"[partition.{name}]\ncollocate = true\nshards_per_gpu = {each}"
            return LineChange(path=facts.config_path, new=new)
    return "add [partition.NAME] with collocate = true"


def check_version(facts: Facts) -> Iterator[Finding]:
    """Check that Slurm's version is in the table of differences."""
    if facts.version is None:
        yield unseen("Slurm", "no Slurm program is installed here")
        return
    text = written(facts.version)
    oldest, newest = map(release_of, (OLDEST, NEWEST))
    if facts.version < OLDEST:
        yield fail("Slurm", f"{text} is older than {oldest}", f"upgrade Slurm to {oldest} or later")
    elif not known(facts.version):
        yield warn("Slurm", f"{text} is newer than {newest}, the newest tried", f"it is treated as {newest}")
    else:
        yield ok("Slurm", text)


def check_controller(facts: Facts) -> Iterator[Finding]:
    """Check the cluster's key, radd and the systemd units."""
    if facts.key_error is None:
        yield unseen("key", "only root and SlurmUser may look at it")
    elif facts.key_error:
        text, has_command, run = facts.key_error.rpartition("; run: ")
        words = "it must be the same 0600 file on controller and GPU nodes"
        yield fail("key", text if has_command else facts.key_error, command(run) if has_command else words)
    else:
        same = f", fingerprint {facts.key_fingerprint}; it must be the same on controller and GPU nodes"
        yield ok("key", f"private{same if facts.key_fingerprint else ''}")
        if facts.radd_key not in ("", facts.key_fingerprint):
            text = f"radd signs with another key ({facts.radd_key}): nodes ignore its bookings"
            yield fail("key", text, command("systemctl restart radd"))
    if not facts.radd_here:
        yield unseen("radd", "its socket is not on this machine; look on the controller")
    elif facts.radd == "ok":
        yield ok("radd", "answers")
    elif os.strerror(errno.EACCES) in (facts.radd or ""):
        yield unseen("radd", "only root and SlurmUser may ask it")
    else:
        verb = "restart" if facts.units.get("radd", "active") == "active" else "enable --now"
        yield fail("radd", facts.radd or "no answer", command(f"systemctl {verb} radd"))
    if facts.undecided:
        text = f"{facts.undecided} submissions went undecided, as reported to radd since it started, some within a day"
        yield warn(
            "radd",
            text,
            "slurmctld's log gives each reason; if it is a time-out, give the controller more CPU",
        )
    for unit, state in facts.units.items():
        wanted = facts.gpu_node if unit == "rad-monitor" else facts.radd_here
        if wanted and state != "active":
            yield warn(f"{unit}.service", state, command(f"systemctl enable --now {unit}"))


def check_daemons(facts: Facts) -> Iterator[Finding]:
    """Check that the daemons run with this rad.toml, and that what they write has space."""
    for unit, settings in facts.settings_of.items():
        if facts.config is not None and differs(settings, facts.settings):
            text = f"it runs with other settings than {facts.config_path}"
            yield fail(unit, text, command(f"systemctl reload {unit}"))
    if facts.version is not None and facts.radd_slurm not in ("", written(facts.version)):
        text = f"slurmctld {facts.radd_slurm} runs, as far as radd knows, and {written(facts.version)} is installed"
        yield fail("Slurm", text, command("systemctl restart slurmctld"))
    if facts.closed_log:
        text = f"SlurmUser may not write to {facts.closed_log}: radd's events are in the journal alone, and not counted"
        user = "" if facts.slurm is None else facts.slurm.settings.get("slurmuser", "")
        yield warn("radd", text, command(f"chown {user or 'slurm'} {facts.closed_log}"))
    for folder in facts.full:
        text = (
            f"the file system of {folder} is full: RAD records nothing there; running jobs keep their limits"
        )
        yield fail("space", text, f"free space there; df -h {folder}; df -i {folder}")


_CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    check_config,
    check_names,
    check_version,
    check_slurm_conf,
    check_hooks,
    check_lua,
    check_controller,
    check_daemons,
    check_standby,
    check_learn,
    check_limits,
    check_partitions,
    check_nodes,
    check_gpu_memory,
    check_gres,
    check_mps_gres,
    check_detected,
    check_apart,
    check_gpus,
    check_mps,
    check_servers,
    check_guard,
)
