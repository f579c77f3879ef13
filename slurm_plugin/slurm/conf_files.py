"""The few lines of Slurm's own files that a hook or radd must know, read without asking slurmctld."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_CANDIDATES = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/var/spool/slurmd/conf-cache/slurm.conf",
)
_SETTING = re.compile(r"\s*(\w+)\s*=\s*([^#]*)")
_INCLUDE = re.compile(r"\s*include\s+([^#\s]+)", re.IGNORECASE)
_DEEPEST = 8


def find_slurm_conf(configured: str, env: Mapping[str, str]) -> Path | None:
    """Return slurm.conf: as configured, as SLURM_CONF says, or at one of the usual places; None if it is at none."""
    for name in filter(None, (configured, env.get("SLURM_CONF"), *_CANDIDATES)):
        if Path(name).is_file():
            return Path(name)
    return None


def devices_confined(slurm_conf: Path | None) -> bool:
    """Return whether a job can reach only the GPUs that Slurm chose for it.

    That is so with `TaskPlugin=task/cgroup` and `ConstrainDevices=yes` in cgroup.conf (slurm.conf(5), cgroup.conf(5)).
    """
    if slurm_conf is None:
        return False
    task_plugin = settings_of(slurm_conf).get("taskplugin", "")
    constrained = settings_of(slurm_conf.with_name("cgroup.conf")).get("constraindevices", "no")
    return "cgroup" in task_plugin.lower() and constrained.lower() in ("yes", "true", "1")


def has_slurmdbd(slurm_conf: Path | None) -> bool:
    """Return whether finished jobs are kept in a database (slurm.conf(5), AccountingStorageType)."""
    if slurm_conf is None:
        return False
    return "slurmdbd" in settings_of(slurm_conf).get("accountingstoragetype", "").lower()


def lacks(settings: Mapping[str, str], name: str, word: str) -> bool:
    """Return whether a list in slurm.conf leaves a word out; of a file that could not be read nothing is claimed.

    >>> lacks({"grestypes": "gpu"}, "GresTypes", "shard"), lacks({}, "GresTypes", "shard")
    (True, False)
    >>> lacks({"jobsubmitplugins": "all_partitions, job_submit/lua"}, "JobSubmitPlugins", "lua")
    False
    """
    words = settings.get(name.lower(), "").lower().split(",")
    return bool(settings) and word not in [each.strip().rpartition("/")[2] for each in words]


def settings_of(path: Path, *, depth: int = 0) -> dict[str, str]:
    """Return the settings of a file and of the files that it includes, names in lower case; the last one counts."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        if (include := _INCLUDE.match(line)) and depth < _DEEPEST:
            found |= settings_of(path.parent / include[1], depth=depth + 1)
        elif setting := _SETTING.match(line):
            found[setting[1].lower()] = setting[2].strip().strip('"')
    return found
