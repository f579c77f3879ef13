"""Which jobs are alive on this node and which process belongs to which job, read from /proc, with no question to Slurm.

Every step has a slurmstepd whose title reads `slurmstepd: [JOB.STEP]`; a job between its Prolog and its first step
has none yet, so absence proves nothing about a young job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.process import PROC

_TITLE = re.compile(rb"^slurmstepd: \[(\d+)[.+_]")
_CGROUP = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTrace:
    """What a task's first environment tells of its job's placement.

    Attributes:
        job_id: Slurm's job id.
        user_id: Who runs it.
        gpus: UUIDs in CUDA_VISIBLE_DEVICES.
        environment: RAD_* variables that TaskProlog set.
    """

    job_id: int
    user_id: int
    gpus: tuple[str, ...]
    environment: dict[str, str]


def living_jobs(*, slurm_conf: str | None = None, proc: Path = PROC) -> frozenset[int]:
    """Return the ids of jobs that have a slurmstepd.

    Args:
        slurm_conf: SLURM_CONF of this node's slurmd, where known: steps of another cluster on this host do not count.
        proc: Where /proc is.
    """
    found = set()
    for folder in _processes(proc):
        if _read(folder / "comm") != b"slurmstepd\n":
            continue
        match = _TITLE.match(_read(folder / "cmdline"))
        if match and (slurm_conf is None or _environ(folder).get("SLURM_CONF", slurm_conf) == slurm_conf):
            found.add(int(match.group(1)))
    return frozenset(found)


def owners_of(pids: Iterable[int], *, proc: Path = PROC) -> dict[int, int]:
    """Return the job id of each process that belongs to a job, by cgroup, else by its first environment."""
    found = {}
    for pid in pids:
        folder = proc / str(pid)
        match = _CGROUP.search(_read(folder / "cgroup").decode(errors="replace"))
        text = match.group(1) if match else _environ(folder).get("SLURM_JOB_ID", "")
        if text.isdigit():
            found[pid] = int(text)
    return found


def placed_tasks(*, slurm_conf: str | None = None, proc: Path = PROC) -> tuple[TaskTrace, ...]:
    """Return what the tasks that run now tell of where their jobs were placed; only root sees all of them."""
    found = []
    for folder in _processes(proc):
        env = _environ(folder)
        gpus = tuple(one for one in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.startswith("GPU-"))
        job_id = env.get("SLURM_JOB_ID", "")
        if not gpus or not job_id.isdigit() or env.get("SLURM_CONF", slurm_conf) != slurm_conf:
            continue
        try:
            user_id = folder.stat().st_uid
        except OSError:
            continue
        rad = {name: value for name, value in env.items() if name.startswith("RAD_")}
        found.append(TaskTrace(job_id=int(job_id), user_id=user_id, gpus=gpus, environment=rad))
    return tuple(found)


def _processes(proc: Path) -> Iterator[Path]:
    return (proc / name for name in _names(proc) if name.isdigit())


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _environ(folder: Path) -> dict[str, str]:
    parts = _read(folder / "environ").decode(errors="replace").split("\0")
    return dict(part.partition("=")[::2] for part in parts if "=" in part)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
