"""The ledger's file: one lock, whole files only, and never trusted blindly.

    RUN/ledger.lock             held while a hook reads, decides and writes
    RUN/ledger.json             replaced by rename, so no reader sees half of one
    RUN/ledger.ballast          given up when the disk is full, so that the next reservation can still be written
    RUN/released/ID.RESTART     a hook that could not wait for the lock gave this job's GPUs back
    RUN/ledger.asked            its age says when Slurm was last asked which jobs are still there
    RUN/jobs/ID/reservation.json   each job's own copy, from which a lost ledger is rebuilt

A ledger of another boot counts for nothing: none of its jobs is alive.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger import Ledger, from_json, reservation_from_json, to_json
from slurm_plugin.core.records import Reservation
from slurm_plugin.core.units import KIB

BALLAST_BYTES = 64 * KIB
"""Room for a ledger of over 100 jobs at some 300 bytes each, and its copy."""

_FIRST_POLL_S, _LONGEST_POLL_S = 0.001, 0.05
"""Growing, so that a crowd of waiting hooks leaves the processor to the one that holds the lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was read.

    Attributes:
        ledger: The reservations.
        rebuilt: The file was missing or damaged, and the jobs' own copies were taken instead: what they say must
            be compared with what is really running.
    """

    ledger: Ledger
    rebuilt: bool


class LedgerStore:
    """The ledger of this node."""

    def __init__(self, folder: Path, *, clock: Clock, boot_id: str) -> None:
        self._folder = folder
        self._clock = clock
        self._boot_id = boot_id
        self._applied: dict[Path, tuple[int, int]] = {}

    @contextmanager
    def locked(self, deadline: Deadline) -> Iterator[None]:
        """Keep every other hook of this node out.

        The lock lies in the kernel and is gone with its holder, however that ends.

        Raises:
            LedgerError: The folder cannot be used, or another hook held the lock too long.
        """
        try:
            self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            handle = os.open(self._folder / "ledger.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise LedgerError(f"{self._folder}: {exc.strerror}") from exc
        try:
            pause_s = _FIRST_POLL_S
            while not _try_lock(handle):
                if deadline.passed():
                    raise LedgerError(f"{self._folder}/ledger.lock: held by another hook for too long")
                self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_POLL_S)
            yield
        finally:
            os.close(handle)

    def read(self) -> Found:
        """Return the reservations; call it under the lock if anything is to be written."""
        found = self._read()
        self._applied = self._notes()
        ledger = found.ledger
        for job_id, restart in self._applied.values():
            ledger = ledger.release(job_id, restart=restart)
        return Found(ledger=ledger, rebuilt=found.rebuilt)

    def _read(self) -> Found:
        path = self._folder / "ledger.json"
        try:
            tree = json.loads(path.read_bytes())
            if tree["boot_id"] == self._boot_id:
                return Found(ledger=from_json(tree), rebuilt=False)
        except (OSError, ValueError, KeyError, TypeError, LedgerError):
            pass
        return Found(ledger=Ledger(reservations=self._copies()), rebuilt=True)

    def write(self, ledger: Ledger) -> None:
        """Replace the reservations; call it under the lock.

        Raises:
            LedgerError: They cannot be written; the older ones are still there, whole.
        """
        text = json.dumps({"boot_id": self._boot_id, **to_json(ledger)}).encode()
        try:
            self._replace("ledger.json", text)
        except OSError as exc:
            raise LedgerError(f"{self._folder}/ledger.json: {exc.strerror}") from exc
        for note in self._applied:
            note.unlink(missing_ok=True)
        self._lay_in_ballast()

    def write_copy(self, reservation: Reservation) -> None:
        """Write a job's own copy of its reservation into its folder, which must exist.

        Raises:
            LedgerError: It cannot be written.
        """
        row = {"boot_id": self._boot_id, "reservation": asdict(reservation)}
        try:
            self._replace(f"jobs/{reservation.job_id}/reservation.json", json.dumps(row).encode())
        except OSError as exc:
            raise LedgerError(f"{self._folder}/jobs/{reservation.job_id}: {exc.strerror}") from exc

    def release(self, job_id: int, *, restart: int, deadline: Deadline) -> Reservation | None:
        """Give back what a job holds and return it; repeating it does nothing. Takes the lock itself.

        If the lock is not free in time, a note is left for whoever takes it next.

        Raises:
            LedgerError: Neither ledger nor note can be written.
        """
        try:
            with self.locked(deadline):
                found = self.read()
                after = found.ledger.release(job_id, restart=restart)
                if after is found.ledger:
                    return None
                if not found.rebuilt:  # the next Prolog rebuilds a lost ledger and compares it with what runs
                    self.write(after)
                return found.ledger.of_job(job_id)
        except LedgerError:
            held = self.read().ledger.of_job(job_id)
            self._leave_note(job_id, restart)
            return held

    def _leave_note(self, job_id: int, restart: int) -> None:
        path = self._folder / "released" / f"{job_id}.{restart}"
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.touch()
        except OSError as exc:
            raise LedgerError(f"{path}: {exc.strerror}") from exc

    def _notes(self) -> dict[Path, tuple[int, int]]:
        """Return what was released by hooks that could not wait for the lock."""
        found = {}
        for path in (self._folder / "released").glob("*.*"):
            job_id, _, restart = path.name.partition(".")
            if job_id.isdigit() and restart.isdigit():
                found[path] = (int(job_id), int(restart))
        return found

    def may_ask(self, interval_s: float) -> bool:
        """Return whether Slurm was not asked about this ledger for so long, and note that it is asked now."""
        path = self._folder / "ledger.asked"
        try:
            if self._clock.now_s() - path.stat().st_mtime < interval_s:
                return False
        except OSError:
            pass
        try:
            replace_file(path, b"")
        except OSError:
            return False
        return True

    def _copies(self) -> tuple[Reservation, ...]:
        found = {}
        for path in sorted((self._folder / "jobs").glob("*/reservation.json")):
            try:
                row: Any = json.loads(path.read_bytes())
                if row["boot_id"] == self._boot_id:
                    held = reservation_from_json(row["reservation"])
                    found[held.job_id] = held
            except (OSError, ValueError, KeyError, TypeError, LedgerError):
                continue  # a copy cut short by a crash: its job never started
        return tuple(found.values())

    def _replace(self, name: str, text: bytes) -> None:
        try:
            replace_file(self._folder / name, text)
        except OSError as exc:
            if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            (self._folder / "ledger.ballast").unlink(missing_ok=True)
            replace_file(self._folder / name, text)

    def _lay_in_ballast(self) -> None:
        path = self._folder / "ledger.ballast"
        if path.exists():
            return
        try:
            replace_file(path, bytes(BALLAST_BYTES))
        except OSError:
            path.with_name(path.name + ".new").unlink(missing_ok=True)


def replace_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that a reader, also after a crash, finds all of the old content or all of the new.

    It is not synced to disk: what a crash of the whole machine leaves is of another boot, and counts for nothing.

    Raises:
        OSError: It cannot be written; the old content is untouched.
    """
    draft = path.with_name(path.name + ".new")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            if os.write(handle, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def boot_id() -> str:
    """Return the kernel's id of the present boot (random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
