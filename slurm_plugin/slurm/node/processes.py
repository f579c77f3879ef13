"""Find the jobs that run on this node and the job of each process from /proc, without asking Slurm.

Every step has a slurmstepd, which daemons.py recognises; a job between its Prolog and its first step has none yet, so
absence proves nothing about a young job. A process that slurmstepd started is recognised by its parents, its session or
its cgroup: a user cannot choose those of another user. A process's environment, however, can be set by its user.
"""

from __future__ import annotations

import marshal
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.process.child import ChildError, in_child
from slurm_plugin.core.process.identity import PROC, Process, ProcFolder, opened, owner_of, started_ticks
from slurm_plugin.slurm.node.cgroups import hierarchies, job_of_cgroup
from slurm_plugin.slurm.node.daemons import Belonging, is_slurmd, job_of_step

T = TypeVar("T")
U = TypeVar("U")

_MOST_PARENTS = 256
_JOB_ID = re.compile(r"[0-9]{1,10}")
"""Users write more, and Python reads no number of 5,000 digits."""
_ENVIRON_S = 0.5
"""The kernel gives no environment while its process waits inside mmap(2) for a file server, which may be its user's."""


def living_jobs(*, slurm_conf: str | None = None, proc: Path = PROC) -> frozenset[int]:
    """Return the ids of jobs that have a slurmstepd, certain or not: only jobs without any are released.

    Args:
        slurm_conf: SLURM_CONF of this node's slurmd, where known: steps of another cluster on this host do not count.
        proc: Where /proc is.
    """
    return frozenset(
        step.job_id
        for entry in _entries(proc)
        if (step := job_of_step(entry, proc=proc)) is not None
        and slurm_conf in (None, _environ(entry).get("SLURM_CONF", slurm_conf))
    )


def slurmd_since_s(name: str, *, slurm_conf: str | None = None, proc: Path = PROC) -> float | None:
    """Return when this node's slurmd started, in seconds since boot as SystemClock counts them; None if none runs.

    Args:
        name: Slurm's name for the node; slurmds of other nodes on this host do not count.
        slurm_conf: SLURM_CONF of this node's slurmd, where known.
        proc: Where /proc is.
    """
    pids = [pid for pid in _pids(proc) if _is_slurmd_of(pid, name, slurm_conf, proc)]
    ticks = [start for pid in pids if (start := started_ticks(pid, proc)) is not None]
    if not ticks:
        return None
    # The oldest is the daemon: before it starts a program, it forks a process that looks the same.
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - min(ticks) / os.sysconf("SC_CLK_TCK")
    return SystemClock().monotonic_s() - age_s


def _is_slurmd_of(pid: int, name: str, slurm_conf: str | None, proc: Path) -> bool:
    with opened(pid, proc) as entry:
        if entry is None or not is_slurmd(entry):
            return False
        words = [word.decode(errors="replace") for word in entry.read("cmdline").split(b"\0")]
        named = _option(words, "-N")
        of = _option(words, "-f") or _environ(entry).get("SLURM_CONF")
    return named in (None, name) and (None in (of, slurm_conf) or of == slurm_conf)


def _option(words: Sequence[str], letter: str) -> str | None:
    """Return the value of an option, as a separate word or attached; None if it is not given."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word.startswith(letter):
            return word.removeprefix(letter) or following
    return None


def owners_of(pids: Iterable[int], *, proc: Path = PROC) -> dict[int, Belonging]:
    """Return the job of each process that belongs to one.

    By the slurmstepd among its parents, by its session, by Slurm's cgroup: these are certain. Users cannot choose their
    slurmstepd, but with cgroup/v1 they can move a process between their own jobs, so the cgroup comes last. A process
    with none of these may name its job in its environment, and that is not certain.

    Args:
        pids: Processes; those that have ended are left out.
        proc: Where /proc is.
    """
    wanted = tuple(pids)
    found = _shown(wanted, proc)
    return found | _by_argument([pid for pid in wanted if pid not in found], proc)


def _shown(pids: Iterable[int], proc: Path) -> dict[int, Belonging]:
    """Return the jobs of processes that show them otherwise than by their environment."""
    found = {}
    sessions: dict[int, Belonging] | None = None
    mounted = hierarchies(proc)
    for pid in pids:
        with opened(pid, proc) as entry:
            if entry is None:
                continue
            by_parents = _by_parents(entry, proc)
            if by_parents is None or not by_parents.certain:
                sessions = _sessions(proc) if sessions is None else sessions
                job_id = job_of_cgroup(entry, mounted)
                by_cgroup = None if job_id is None else Belonging(job_id=job_id, certain=True)
                by_parents = sessions.get(entry.session) or by_cgroup or by_parents
            if by_parents is not None:
                found[pid] = by_parents
    return found


def processes_of(job_id: int, user_id: int, *, proc: Path = PROC) -> tuple[Process, ...]:
    """Return the processes of a job that run as its user; root's, such as slurmstepd, are never among them.

    Args:
        job_id: The job.
        user_id: Its user.
        proc: Where /proc is.
    """
    own = [pid for pid in _pids(proc) if owner_of(pid, proc) == user_id]
    known = [Process.running(pid, proc) for pid in own]
    belongs = owners_of([one.pid for one in known if one is not None], proc=proc)
    return tuple(
        one for one in known if one is not None and one.pid in belongs and belongs[one.pid].job_id == job_id
    )


def _by_parents(entry: ProcFolder, proc: Path) -> Belonging | None:
    """Return the job of the slurmstepd among a process' parents: a user cannot join the children of another."""
    with ExitStack() as opened_files:
        for _ in range(_MOST_PARENTS):
            pid = entry.parent
            above = opened_files.enter_context(opened(pid, proc)) if pid > 1 else None
            if above is None or entry.parent != pid:  # it ended meanwhile, and its pid may be reused
                return None
            step = job_of_step(above, proc=proc)
            if step is not None:
                return step
            entry = above
    return None


def _sessions(proc: Path) -> dict[int, Belonging]:
    """Return the job of each session with a slurmstepd; a session with several jobs proves nothing.

    The process that begins the session ends at once, as it only orphans slurmstepd (seen on 22.05.8, 24.11.5 and
    26.05.5). A session with its first process still running may be older than the job, such as slurmd's own.
    """
    found: dict[int, set[Belonging]] = {}
    for entry in _entries(proc):
        step = job_of_step(entry, proc=proc)
        session = entry.session if step is not None and step.certain else 0
        if step is not None and session and not (proc / str(session)).exists():
            found.setdefault(session, set()).add(step)
    return {session: next(iter(steps)) for session, steps in found.items() if len(steps) == 1}


def _by_argument(pids: Sequence[int], proc: Path) -> dict[int, Belonging]:
    """Return the jobs that processes name in their environment; none if the kernel gives one of them too late."""

    def named() -> dict[int, int]:
        words = {pid: _environ_of(pid, proc).get("SLURM_JOB_ID", "") for pid in pids}
        return {pid: int(word) for pid, word in words.items() if _JOB_ID.fullmatch(word)}

    return {pid: Belonging(job_id=job_id, certain=False) for pid, job_id in _in_time(named, pids).items()}


def claimed_gpus(jobs: Iterable[int], *, proc: Path = PROC) -> dict[int, tuple[str, ...]]:
    """Return the GPUs that the tasks of these jobs name in their first environment.

    A user may write anything there, so it is only a hint where no other source exists; and the environment of a process
    of another job says nothing about these jobs.

    Args:
        jobs: Ids of jobs.
        proc: Where /proc is.
    """
    wanted = frozenset(jobs)
    tasks: dict[int, list[int]] = {}
    for pid, owner in _shown(_pids(proc) if wanted else (), proc).items():
        if owner.certain and owner.job_id in wanted:
            tasks.setdefault(owner.job_id, []).append(pid)
    found = {job_id: _in_time(partial(_gpus_named, pids, proc), pids) for job_id, pids in tasks.items()}
    return {job_id: tuple(gpus) for job_id, gpus in found.items() if gpus}


def _gpus_named(pids: Iterable[int], proc: Path) -> dict[str, None]:
    """Return the GPUs that the first of these processes to name some names."""
    for pid in pids:
        environ = _environ_of(pid, proc)
        words = (environ.get("RAD_GPUS") or environ.get("CUDA_VISIBLE_DEVICES", "")).split(",")
        if gpus := dict.fromkeys(word for word in words if word.startswith("GPU-")):
            return gpus
    return {}


def _in_time(read: Callable[[], dict[T, U]], pids: Sequence[int]) -> dict[T, U]:
    """Return what a child reads of users' processes; nothing if one of them keeps it waiting."""
    try:
        return marshal.loads(in_child(lambda: marshal.dumps(read()), timeout_s=_ENVIRON_S)) if pids else {}
    except ChildError:
        return {}


def _environ_of(pid: int, proc: Path) -> dict[str, str]:
    with opened(pid, proc) as entry:
        return {} if entry is None else _environ(entry)


def _entries(proc: Path) -> Iterator[ProcFolder]:
    for pid in _pids(proc):
        with opened(pid, proc) as entry:
            if entry is not None:
                yield entry


def _pids(proc: Path) -> Iterator[int]:
    return (int(name) for name in _names(proc) if name.isdigit())


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _environ(entry: ProcFolder) -> dict[str, str]:
    """Return whole variables: of one that is cut at the end of what is read, the rest is unknown."""
    parts = entry.read("environ").decode(errors="replace").split("\0")[:-1]
    return dict(part.partition("=")[::2] for part in parts if "=" in part)
