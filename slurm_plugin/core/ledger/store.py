"""The ledger file of a node: one lock, preallocated space, and no intermediate state visible to a reader.

    RUN/ledger.lock             held while a hook reads, decides and writes
    RUN/reconcile.lock          held while one process reconciles the ledger (node/reconcile.py)
    RUN/ledger                  its text (codec.py) in two slots of 256 KiB (files/two_slots.py)
    RUN/released/ID.RESTART     a hook that could not wait for the lock released this job's GPUs

A ledger of another boot is ignored: none of its jobs still runs.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from gpumemnet.records import frozen
from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.files.preallocated import SpareFiles
from slurm_plugin.core.files.two_slots import TwoSlots
from slurm_plugin.core.ledger.codec import decode, encode
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.lock import NodeLock
from slurm_plugin.core.records.node import Allocation

_READS = 5
"""A reader without the lock may collide with a writer once; never this often."""


@frozen
class StoredLedger:
    """Result of reading the ledger.

    Attributes:
        ledger: The allocations; none if they are lost.
        lost: There is no ledger of this boot: it must be rebuilt from the evidence on the node (reconcile.py).
    """

    ledger: Ledger
    lost: bool


class LedgerStore:
    """The ledger of this node."""

    def __init__(self, folder: Path, *, clock: Clock, boot_id: str) -> None:
        self._folder = folder
        self._slots = TwoSlots(folder / "ledger")
        self._lock = NodeLock(folder / "ledger.lock", clock)
        self._reconcile_lock = NodeLock(folder / "reconcile.lock", clock)
        self.boot_id = boot_id
        self._applied: dict[Path, tuple[int, int]] = {}

    def locked(self, deadline: Deadline) -> AbstractContextManager[None]:
        """Exclude every other hook of this node; do nothing slow inside.

        Raises:
            LedgerError: On entry: the folder cannot be used, or another hook held the lock too long.
        """
        return self._lock.acquired(deadline)

    def reconciling(self) -> AbstractContextManager[bool]:
        """Take the reconciliation lock if no other process of this node has it; yield whether it was free.

        Raises:
            LedgerError: On entry: the folder cannot be used.
        """
        return self._reconcile_lock.tried()

    def read(self) -> StoredLedger:
        """Return the allocations; call it under the lock if anything is to be written."""
        ledger = self._read()
        self._applied = self._notes()
        if ledger is None:
            return StoredLedger(ledger=Ledger(), lost=True)
        for job_id, restart in self._applied.values():
            ledger = ledger.release(job_id, restart=restart)
        return StoredLedger(ledger=ledger, lost=False)

    def write(self, ledger: Ledger) -> None:
        """Replace the allocations; call it under the lock.

        Raises:
            LedgerError: They cannot be written; the older ones are still intact.
        """
        text = encode(ledger, boot_id=self.boot_id)
        try:
            made = self._slots.write(text)
        except OSError as exc:
            raise LedgerError(f"{self._folder}/ledger: {exc.strerror}") from exc
        if made:
            self._lay_out()
        for note in self._applied:
            SpareFiles(self._folder).discard(note)
        self._applied = {}

    def release(self, job_id: int, *, restart: int, deadline: Deadline) -> Allocation | None:
        """Release a job's allocation and return it; repeating it does nothing. Takes the lock itself.

        If the lock is not free in time, a note is left for the next process that takes it.

        Args:
            job_id: The job.
            restart: Restart count of the run that ends; the allocation of a later run stays.
            deadline: Until when the lock is waited for.

        Raises:
            LedgerError: Neither ledger nor note can be written.
        """
        if not (self._folder / "ledger").exists():
            return None
        try:
            with self.locked(deadline):
                found = self.read()
                after = found.ledger.release(job_id, restart=restart)
                if after is found.ledger:
                    return None
                self.write(after)
                return found.ledger.of_job(job_id)
        except LedgerError:
            allocation = self.read().ledger.of_job(job_id)
            self._leave_note(job_id, restart)
            return allocation

    def _read(self) -> Ledger | None:
        """Return the file's ledger of this boot; None if it has none."""
        for _ in range(_READS):
            text = self._slots.read()
            if text is not None:
                with suppress(LedgerError):
                    return decode(text, boot_id=self.boot_id)
                return None  # intact, and yet no ledger: the other slot would be out of date
        return None

    def _lay_out(self) -> None:
        """Create all that needs an inode while inodes are free; what fails here is created where it is needed."""
        with suppress(OSError, LedgerError):
            self._lock.make()
            self._reconcile_lock.make()
            for name in ("placed", "released", "ended"):
                (self._folder / name).mkdir(mode=0o755, exist_ok=True)
        SpareFiles(self._folder).fill()

    def _leave_note(self, job_id: int, restart: int) -> None:
        path = self._folder / "released" / f"{job_id}.{restart}"
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            SpareFiles(self._folder).write(path, b"")
        except OSError as exc:
            raise LedgerError(f"{path}: {exc.strerror}") from exc

    def _notes(self) -> dict[Path, tuple[int, int]]:
        """Return the releases of hooks that could not wait for the lock."""
        folder = self._folder / "released"
        try:
            names = os.listdir(folder)
        except OSError:
            return {}
        found = {}
        for name in names:
            job_id, _, restart = name.partition(".")
            if job_id.isdigit() and restart.isdigit():
                found[folder / name] = (int(job_id), int(restart))
        return found


def boot_id() -> str:
    """Return the kernel's id of the present boot (random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
