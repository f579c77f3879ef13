"""Stored state of one MPS server on one GPU."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.files.atomic import replace_file
from slurm_plugin.core.files.locks import release
from slurm_plugin.core.process.identity import Process

_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One MPS server on one GPU.

    Attributes:
        daemon: The control daemon; None if none was started.
        server: The server under it; None if none was started.
        jobs: Job id -> memory limit in bytes, or None for a job without a limit.
        users: Job id -> the job's user.
        processes: Job id -> processes that it may connect, as far as its request shows; missing ones count as one.
    """

    daemon: Process | None = None
    server: Process | None = None
    jobs: dict[int, int | None] = field(default_factory=dict)
    users: dict[int, int] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)

    def with_job(self, job_id: int, *, cap_bytes: int | None, user_id: int, processes: int) -> State:
        """Return the state with a job.

        Args:
            job_id: Slurm's job id.
            cap_bytes: Its limit; None for no limit.
            user_id: Its user.
            processes: Processes that it may connect.
        """
        return replace(
            self,
            jobs={**self.jobs, job_id: cap_bytes},
            users={**self.users, job_id: user_id},
            processes={**self.processes, job_id: processes},
        )

    def without(self, job_id: int) -> State:
        """Return the state without a job."""
        return replace(
            self,
            jobs={job: cap for job, cap in self.jobs.items() if job != job_id},
            users={job: user_id for job, user_id in self.users.items() if job != job_id},
            processes={job: count for job, count in self.processes.items() if job != job_id},
        )


def read_state(place: Path) -> State:
    """Return the stored state; an empty state if there is none, or none that is readable."""
    try:
        rows: Any = json.loads((place / "state.json").read_bytes())
        return State(
            daemon=Process(**rows["daemon"]) if rows["daemon"] else None,
            server=Process(**rows["server"]) if rows["server"] else None,
            jobs={int(job): cap for job, cap in rows["jobs"].items()},
            users={int(job): int(user_id) for job, user_id in rows["users"].items()},
            processes={int(job): int(count) for job, count in rows["processes"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return State()


def write_state(place: Path, state: State) -> None:
    """Replace the stored state.

    Args:
        place: Folder of one MPS server on one GPU.
        state: The new state.

    Raises:
        MpsError: It cannot be written, e.g. because the file system is full.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        replace_file(place / "state.json", json.dumps(asdict(state)).encode())
    except OSError as exc:
        raise MpsError(f"{place}: {exc.strerror}") from exc


@contextmanager
def locked(place: Path, clock: Clock, deadline: Deadline) -> Iterator[None]:
    """Hold the lock of one MPS server on one GPU.

    Args:
        place: Folder of one MPS server on one GPU; the lock lies next to it.
        clock: Time.
        deadline: Until when it is waited for.

    Raises:
        MpsError: It was not free in time, or there is no space for it.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(handle, 0o600)  # who can open a file to read it can hold its lock (flock(2))
            _take(handle, place, clock, deadline)
            yield
        finally:
            release(handle)
    except OSError as exc:
        raise MpsError(f"{place}: {exc.strerror or exc}") from exc


@contextmanager
def locked_folder(folder: Path, clock: Clock, deadline: Deadline) -> Iterator[None]:
    """Hold the lock of a folder, which needs no space.

    Args:
        folder: The folder.
        clock: Time.
        deadline: Until when it is waited for.

    Raises:
        MpsError: It was not free in time.
        OSError: There is no such folder.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _take(handle, folder, clock, deadline)
        yield
    finally:
        release(handle)


def _take(descriptor: int, place: Path, clock: Clock, deadline: Deadline) -> None:
    """Wait for a lock."""
    while not _taken(descriptor):
        if deadline.passed():
            raise MpsError(f"{place}: another hook holds the lock")
        clock.sleep(_POLL_S)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
