"""Which jobs are alive on this node and which process belongs to which job, read from /proc, with no question to Slurm.

Every step has a slurmstepd whose title reads `slurmstepd: [JOB.STEP]`; a job between its Prolog and its first step
has none yet, so absence proves nothing about a young job. Any program may call itself so: only those count that run as
the user of slurmd, who is root.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.process import PROC, Process, owner_of, started_ticks

_TITLE = re.compile(rb"^slurmstepd: \[(\d+)[.+_]")
_MOST_PARENTS = 256
_CGROUP = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)


def living_jobs(*, slurm_conf: str | None = None, proc: Path = PROC) -> frozenset[int]:
    """Return the ids of jobs that have a slurmstepd.

    Args:
        slurm_conf: SLURM_CONF of this node's slurmd, where known: steps of another cluster on this host do not count.
        proc: Where /proc is.
    """
    found = set()
    for pid in _pids(proc):
        job_id = _job_of_step(pid, proc)
        if job_id is not None and slurm_conf in (
            None,
            _environ(proc / str(pid)).get("SLURM_CONF", slurm_conf),
        ):
            found.add(job_id)
    return frozenset(found)


def slurmd_since_s(name: str, *, slurm_conf: str | None = None, proc: Path = PROC) -> float | None:
    """Return when this node's slurmd started, in seconds since boot as SystemClock counts them; None if none runs.

    Args:
        name: Slurm's name of the node; slurmds of other nodes on this host do not count.
        slurm_conf: SLURM_CONF of this node's slurmd, where known.
        proc: Where /proc is.
    """
    found = [pid for pid in _pids(proc) if _is_slurmd(pid, name, slurm_conf, proc)]
    ticks = [start for pid in found if (start := started_ticks(pid, proc)) is not None]
    if not ticks:
        return None
    # The oldest is the daemon: before it starts a program, it forks a process that looks the same.
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - min(ticks) / os.sysconf("SC_CLK_TCK")
    return SystemClock().monotonic_s() - age_s


def _is_slurmd(pid: int, name: str, slurm_conf: str | None, proc: Path) -> bool:
    folder = proc / str(pid)
    if _read(folder / "comm") != b"slurmd\n" or owner_of(pid, proc) != os.geteuid():
        return False
    words = [word.decode(errors="replace") for word in _read(folder / "cmdline").split(b"\0")]
    named = _option(words, "-N")
    of = _option(words, "-f") or _environ(folder).get("SLURM_CONF")
    return named in (None, name) and (None in (of, slurm_conf) or of == slurm_conf)


def _option(words: Sequence[str], letter: str) -> str | None:
    """Return the value of an option, set apart or not; None if it is not given."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word.startswith(letter):
            return word.removeprefix(letter) or following
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """Which job a process belongs to.

    Attributes:
        job_id: Slurm's job id.
        certain: Root said so: its cgroup, or a slurmstepd among its parents. Else its environment, which its user
            may write.
    """

    job_id: int
    certain: bool


def owners_of(pids: Iterable[int], *, proc: Path = PROC) -> dict[int, Belonging]:
    """Return the job of each process that belongs to one: by cgroup, by its parents, else by its first environment.

    Args:
        pids: Processes; those that have ended are left out.
        proc: Where /proc is.
    """
    found = {}
    for pid in pids:
        folder = proc / str(pid)
        match = _CGROUP.search(_read(folder / "cgroup").decode(errors="replace"))
        job_id = int(match.group(1)) if match else _job_of_parents(pid, proc)
        if job_id is not None:
            found[pid] = Belonging(job_id=job_id, certain=True)
            continue
        text = _environ(folder).get("SLURM_JOB_ID", "")
        if text.isdigit():
            found[pid] = Belonging(job_id=int(text), certain=False)
    return found


def processes_of(job_id: int, user_id: int, *, proc: Path = PROC) -> tuple[Process, ...]:
    """Return the processes of a job that run as its owner; root's, such as slurmstepd, are never among them.

    Args:
        job_id: The job.
        user_id: Its owner.
        proc: Where /proc is.
    """
    own = [pid for pid in _pids(proc) if owner_of(pid, proc) == user_id]
    known = [Process.running(pid, proc) for pid in own]
    belongs = owners_of([one.pid for one in known if one is not None], proc=proc)
    return tuple(
        one for one in known if one is not None and one.pid in belongs and belongs[one.pid].job_id == job_id
    )


def _job_of_parents(pid: int, proc: Path) -> int | None:
    """Return the job of the slurmstepd among a process' parents: nobody can choose another one's children."""
    for _ in range(_MOST_PARENTS):
        pid = _parent(pid, proc)
        if pid <= 1:
            return None
        job_id = _job_of_step(pid, proc)
        if job_id is not None:
            return job_id
    return None


def _job_of_step(pid: int, proc: Path) -> int | None:
    """Return the job of a slurmstepd; None if the process is none."""
    folder = proc / str(pid)
    if _read(folder / "comm") != b"slurmstepd\n" or owner_of(pid, proc) != os.geteuid():
        return None
    match = _TITLE.match(_read(folder / "cmdline"))
    return int(match.group(1)) if match else None


def _parent(pid: int, proc: Path) -> int:
    """Return a process' parent (proc(5), /proc/PID/stat, field 4); 0 if it has none."""
    fields = _read(proc / str(pid) / "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0


def claimed_gpus(jobs: Iterable[int], *, proc: Path = PROC) -> dict[int, tuple[str, ...]]:
    """Return the GPUs that the tasks of these jobs name in their first environment.

    A user may write there what he likes, so it is a hint for what nobody else tells; and a process of another job says
    nothing about these.

    Args:
        jobs: Ids of jobs.
        proc: Where /proc is.
    """
    wanted = frozenset(jobs)
    found: dict[int, tuple[str, ...]] = {}
    for pid in _pids(proc) if wanted else ():
        environ = _environ(proc / str(pid))
        named = (environ.get("RAD_GPUS") or environ.get("CUDA_VISIBLE_DEVICES", "")).split(",")
        gpus = tuple(one for one in named if one.startswith("GPU-"))
        owner = owners_of([pid], proc=proc).get(pid) if gpus else None
        if owner is not None and owner.certain and owner.job_id in wanted:
            found.setdefault(owner.job_id, gpus)
    return found


def _pids(proc: Path) -> Iterator[int]:
    return (int(name) for name in _names(proc) if name.isdigit())


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
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
