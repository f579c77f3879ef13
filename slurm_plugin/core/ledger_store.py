"""The ledger's file: one lock, space reserved beforehand, and no state in between that a reader could see.

    RUN/ledger.lock             held while a hook reads, decides and writes
    RUN/sweep.lock              held while one process compares the ledger with what is really there (node/sweep.py)
    RUN/ledger                  two slots of 256 KiB; each write goes into the older one
    RUN/released/ID.RESTART     a hook that could not wait for the lock gave this job's GPUs back

A slot is a line `rad-ledger VERSION NUMBER CRC LENGTH` and that many bytes of JSON (ledger_codec.py); the whole slot
with the highest number counts. A hook that is killed while it writes leaves a slot whose checksum does not fit, and the
other slot is what it was. Nothing is allocated when a reservation is written, so that a full disk cannot refuse one.

A ledger of another boot counts for nothing: none of its jobs is alive.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.core.ledger_codec import decode, encode
from slurm_plugin.core.records import Reservation
from slurm_plugin.core.spare_files import SpareFiles
from slurm_plugin.core.units import KIB

SLOT_BYTES = 256 * KIB
"""Some 700 reservations of 350 bytes."""

VERSION = 1
"""Of the slot's form; what is inside may grow without a new one."""

_READS = 5
"""A reader without the lock may meet a writer once; never so often."""

_FIRST_POLL_S, _LONGEST_POLL_S = 0.001, 0.05
"""Growing, so that a crowd of waiting hooks leaves the processor to the one that holds the lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was read.

    Attributes:
        ledger: The reservations; none if they are lost.
        lost: There is no ledger of this boot: it must be rebuilt from what is really there (reconcile.py).
    """

    ledger: Ledger
    lost: bool


class LedgerStore:
    """The ledger of this node."""

    def __init__(self, folder: Path, *, clock: Clock, boot_id: str) -> None:
        self._folder = folder
        self._clock = clock
        self.boot_id = boot_id
        self._applied: dict[Path, tuple[int, int]] = {}

    @contextmanager
    def locked(self, deadline: Deadline) -> Iterator[None]:
        """Keep every other hook of this node out; do nothing slow inside.

        The lock lies in the kernel and is gone with its holder, however that ends. Its holder comes first on a busy
        processor, because all others wait for it.

        Raises:
            LedgerError: The folder cannot be used, or another hook held the lock too long.
        """
        handle = self._open_lock("ledger.lock")
        try:
            pause_s = _FIRST_POLL_S
            while not _try_lock(handle):
                if deadline.passed():
                    raise LedgerError(f"{self._folder}/ledger.lock: held by another hook for too long")
                self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_POLL_S)
            with _first_on_the_processor():
                yield
        finally:
            os.close(handle)

    @contextmanager
    def sweeping(self) -> Iterator[bool]:
        """Tell whether no other process of this node sweeps now, and keep others from it meanwhile.

        Raises:
            LedgerError: The folder cannot be used.
        """
        handle = self._open_lock("sweep.lock")
        try:
            if _try_lock(handle):
                with _first_on_the_processor():
                    yield True
            else:
                yield False
        finally:
            os.close(handle)

    def read(self) -> Found:
        """Return the reservations; call it under the lock if anything is to be written."""
        ledger = self._read()
        self._applied = self._notes()
        if ledger is None:
            return Found(ledger=Ledger(), lost=True)
        for job_id, restart in self._applied.values():
            ledger = ledger.release(job_id, restart=restart)
        return Found(ledger=ledger, lost=False)

    def write(self, ledger: Ledger) -> None:
        """Replace the reservations; call it under the lock.

        Raises:
            LedgerError: They cannot be written; the older ones are still there, whole.
        """
        text = encode(ledger, boot_id=self.boot_id)
        try:
            self._write(text)
        except OSError as exc:
            raise LedgerError(f"{self._folder}/ledger: {exc.strerror}") from exc
        for note in self._applied:
            SpareFiles(self._folder).discard(note)
        self._applied = {}

    def release(self, job_id: int, *, restart: int, deadline: Deadline) -> Reservation | None:
        """Give back what a job holds and return it; repeating it does nothing. Takes the lock itself.

        If the lock is not free in time, a note is left for whoever takes it next.

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
            held = self.read().ledger.of_job(job_id)
            self._leave_note(job_id, restart)
            return held

    def _open_lock(self, name: str) -> int:
        try:
            self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise LedgerError(f"{self._folder}: {exc.strerror}") from exc

    def _read(self) -> Ledger | None:
        """Return what the file says of this boot; None if it says nothing."""
        for _ in range(_READS):
            slots = self._slots()
            if slots:
                with suppress(LedgerError):
                    return decode(max(slots.values())[1], boot_id=self.boot_id)
                return None  # whole, and yet no ledger: the other slot would be out of date
        return None

    def _slots(self) -> dict[int, tuple[int, bytes]]:
        """Return number and text of each whole slot."""
        try:
            content = (self._folder / "ledger").read_bytes()
        except OSError:
            return {}
        found = {}
        for slot in (0, 1):
            whole = _parse(content[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])
            if whole is not None:
                found[slot] = whole
        return found

    def _write(self, text: bytes) -> None:
        slots = self._slots()
        number = 1 + max((number for number, _ in slots.values()), default=0)
        slot = min((0, 1), key=lambda one: slots[one][0] if one in slots else -1)
        head = f"rad-ledger {VERSION} {number} {_checksum(number, text):08x} {len(text)}\n".encode()
        if len(head) + len(text) > SLOT_BYTES:
            raise OSError(errno.EFBIG, "File too large: more reservations than a ledger holds")
        path = self._folder / "ledger"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            handle = self._create(path)
        try:
            if os.pwrite(handle, head + text, slot * SLOT_BYTES) != len(head) + len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)

    def _create(self, path: Path) -> int:
        """Make the file with all of its space, and return a handle; it appears whole or not at all."""
        draft = path.with_name("ledger.new")
        draft.unlink(missing_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, 2 * SLOT_BYTES)
            draft.rename(path)
        except OSError:
            os.close(handle)
            draft.unlink(missing_ok=True)
            raise
        self._lay_out()
        return handle

    def _lay_out(self) -> None:
        """Make what later needs an inode, while there is one; what cannot be made is made where it is needed."""
        with suppress(OSError, LedgerError):
            for name in ("ledger.lock", "sweep.lock"):
                os.close(self._open_lock(name))
            for name in ("placed", "released"):
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
        """Return what was released by hooks that could not wait for the lock."""
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


def _parse(slot: bytes) -> tuple[int, bytes] | None:
    """Return number and text of a slot; None if it was never written, or not to its end."""
    words = slot[:100].partition(b"\n")[0].split(b" ")
    try:
        mark, _, number, crc, length = words
        begin = sum(map(len, words)) + len(words)
        text = slot[begin : begin + int(length)]
        whole = mark == b"rad-ledger" and _checksum(int(number), text) == int(crc, 16)
        return (int(number), text) if whole and len(text) == int(length) else None
    except (ValueError, OverflowError):
        return None


def _checksum(number: int, text: bytes) -> int:
    return zlib.crc32(text, zlib.crc32(str(number).encode()))


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def _first_on_the_processor() -> Iterator[None]:
    """Run with the highest ordinary priority, where that is allowed, and with the former one afterwards."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    try:
        yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
