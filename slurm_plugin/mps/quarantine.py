"""Quarantine: after a fatal GPU fault where users share MPS servers, jobs run apart from other users for a while.

    RUN/mps-faults/1000.json   root's: the faults of user 1000 on this node, one row for each of its jobs concerned

A job that faulted alone on its server caused the fault. After a first one the job and other jobs of its user and model
are apart, after a second one all jobs of the user; each doubles the time. Where several jobs were on the server, any of
them may have caused it: all jobs of their users are apart for FIRST_S after the last such fault, which counts no
further. rad-monitor records a fault as soon as it sees it, as the job may run on. No job of another user joins the
server of such a job. A reboot of the node ends a quarantine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.files.preallocated import SPARE_BYTES, SpareFiles
from slurm_plugin.core.logs.once import Complaint
from slurm_plugin.mps.state import locked_folder

FIRST_S = 3600.0
LONGEST_S = 86_400.0
KEPT_S = 7 * LONGEST_S
"""A fault counts towards later quarantines for so long."""
MOST = 100
"""Faults of one user that are kept, of those that are certain and of the others."""
LOCK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Caused:
    """One fault that a job caused, or may have caused.

    Attributes:
        job_id: The job.
        restart: Restart count of its run.
        profile_key: Hash of its model and training setup; None if unknown.
        time_s: When, seconds since the epoch.
        certain: Whether the job was alone on the server; otherwise another one may have caused it.
    """

    job_id: int
    restart: int
    profile_key: str | None
    time_s: float
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A user's quarantine on this node.

    Attributes:
        until_s: When it ends, seconds since the epoch.
        all_jobs: Whether it holds for all jobs of the user; otherwise for those of one model.
        certain: Whether a job of the user is known to have caused a fault.
    """

    until_s: float
    all_jobs: bool
    certain: bool = True

    @property
    def until(self) -> str:
        """Return the time of its end for people, on this node's clock."""
        return datetime.fromtimestamp(self.until_s).strftime("%Y-%m-%d %H:%M")


def quarantine_of(
    faults: Sequence[Caused], *, job_id: int, profile_key: str | None, now_s: float
) -> Quarantine | None:
    """Return the quarantine of a job; None if there is none.

    Args:
        faults: Those of its user on this node.
        job_id: The job.
        profile_key: Hash of its model and training setup; None if unknown, which is treated as one model.
        now_s: Seconds since the epoch.
    """
    past = [one for one in faults if 0.0 <= now_s - one.time_s <= KEPT_S]
    found = [
        Quarantine(until_s=one.time_s + FIRST_S, all_jobs=True, certain=False)
        for one in past
        if not one.certain
    ]
    counted = [one for one in past if one.certain]
    if counted:
        last = max(counted, key=lambda one: one.time_s)
        until_s = last.time_s + min(LONGEST_S, FIRST_S * 2.0 ** (len(counted) - 1))
        all_jobs = len(counted) > 1
        if all_jobs or job_id == last.job_id or profile_key == last.profile_key:
            found.append(Quarantine(until_s=until_s, all_jobs=all_jobs))
    longest = max(found, key=lambda one: one.until_s, default=None)
    return longest if longest is not None and now_s < longest.until_s else None


def caused_lately(run: Path, users: Mapping[int, int], *, now_s: float) -> bool:
    """Return whether a job among these may have caused a fault and is under quarantine: it may cause the next one.

    Args:
        run: `paths.run`.
        users: User of each job.
        now_s: Seconds since the epoch.
    """
    for job_id, user_id in users.items():
        faults = faults_of(run, user_id)
        if any(one.job_id == job_id for one in faults) and (
            quarantine_of(faults, job_id=job_id, profile_key=None, now_s=now_s) is not None
        ):
            return True
    return False


def faults_of(run: Path, user_id: int) -> tuple[Caused, ...]:
    """Return the faults of a user on this node; none if there is no readable file.

    Args:
        run: `paths.run`.
        user_id: The user.
    """
    try:
        rows = json.loads(_path(run, user_id).read_bytes())
        return tuple(
            Caused(
                job_id=int(row["job_id"]),
                restart=int(row["restart"]),
                profile_key=None if row["profile_key"] is None else str(row["profile_key"]),
                time_s=float(row["time_s"]),
                certain=row.get("certain", True) is not False,
            )
            for row in rows
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return ()


def add_fault(run: Path, user_id: int, fault: Caused, *, clock: Clock) -> tuple[Caused, ...]:
    """Record a fault and return all of its user: a certain one once for a run, of the others a job's last.

    On a full disk the file takes over a spare one, and keeps as many of the last faults as that holds.

    Args:
        run: `paths.run`.
        user_id: The job's user.
        fault: The fault.
        clock: Time.

    Raises:
        MpsError: It could not be recorded.
    """
    path = _path(run, user_id)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked_folder(path.parent, clock, Deadline(clock, LOCK_S)):
            before = faults_of(run, user_id)
            certain = [one for one in before if one.certain]
            others = [one for one in before if not one.certain]
            if not fault.certain:
                others = [*(one for one in others if one.job_id != fault.job_id), fault]
            elif any((one.job_id, one.restart) == (fault.job_id, fault.restart) for one in certain):
                return before
            else:
                certain.append(fault)
            after = (*certain[-MOST:], *others[-MOST:])
            _write(run, path, after, fault)
            return after
    except OSError as exc:
        raise MpsError(f"{path}: {exc.strerror}") from exc


class Faults:
    """Faults that rad-monitor finds, each recorded as soon as that is possible."""

    def __init__(self, run: Path, clock: Clock, log: Callable[[str], None]) -> None:
        """Begin with none.

        Args:
            run: `paths.run`.
            clock: Time.
            log: Takes a line about a fault that cannot be recorded.
        """
        self._run, self._clock = run, clock
        self._open: list[tuple[int, Caused]] = []
        self._complaint = Complaint(log)

    def found(self, user_id: int, fault: Caused) -> None:
        """Take a fault of a user's job."""
        self._open.append((user_id, fault))

    def record(self) -> None:
        """Record the faults found, and those for which there was no space before."""
        faults, self._open = self._open[-MOST:], []
        wrong = ""
        for user_id, fault in faults:
            try:
                add_fault(self._run, user_id, fault, clock=self._clock)
            except MpsError as exc:
                self._open.append((user_id, fault))
                wrong = f"job {fault.job_id}: its GPU fault is not recorded yet: {exc}"
        self._complaint.set(wrong)


def _write(run: Path, path: Path, faults: Sequence[Caused], newest: Caused) -> None:
    spares = SpareFiles(run)
    try:
        spares.write(path, _as_text(faults), mode=0o600)
    except OSError:
        last = sorted(faults, key=lambda one: (one == newest, one.time_s))
        while last and len(_as_text(last)) > SPARE_BYTES:
            last.pop(0)
        spares.write(path, _as_text(last), mode=0o600)


def _as_text(faults: Sequence[Caused]) -> bytes:
    return json.dumps([asdict(one) for one in faults]).encode()


def _path(run: Path, user_id: int) -> Path:
    return run / "mps-faults" / f"{user_id}.json"
