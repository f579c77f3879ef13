"""A file of two preallocated slots: a writer that is killed leaves the old text or the new one.

Each write goes into the older slot. A slot is a line `rad-ledger VERSION NUMBER CRC LENGTH` and that many bytes of
text; the intact slot with the highest number counts, and one with a wrong checksum was never written to its end.
Nothing is allocated when a text is written, so that a full disk cannot prevent it.
"""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path

from slurm_plugin.core.files.atomic import draft_of
from slurm_plugin.core.units import KIB

SLOT_BYTES = 256 * KIB
"""Some 700 allocations of 350 bytes."""

VERSION = 1
"""Version of the slot's format; its content may grow without a new one."""


class TwoSlots:
    """The file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes | None:
        """Return the text; None if no slot is intact: there is none, or the first write is still in progress."""
        slots = self._slots()
        return max(slots.values())[1] if slots else None

    def write(self, text: bytes) -> bool:
        """Replace the text; return whether the file was created for it.

        Raises:
            OSError: It cannot be written; the older text is still intact.
        """
        slots = self._slots()
        number = 1 + max((number for number, _ in slots.values()), default=0)
        slot = min((0, 1), key=lambda one: slots[one][0] if one in slots else -1)
        head = f"rad-ledger {VERSION} {number} {_checksum(number, text):08x} {len(text)}\n".encode()
        if len(head) + len(text) > SLOT_BYTES:
            raise OSError(errno.EFBIG, "File too large: more allocations than a ledger can store")
        made = False
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            handle, made = self._create(), True
        try:
            if os.pwrite(handle, head + text, slot * SLOT_BYTES) != len(head) + len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)
        return made

    def _slots(self) -> dict[int, tuple[int, bytes]]:
        """Return number and text of each intact slot."""
        try:
            content = self._path.read_bytes()
        except OSError:
            return {}
        found = {}
        for slot in (0, 1):
            whole = _parse(content[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])
            if whole is not None:
                found[slot] = whole
        return found

    def _create(self) -> int:
        """Create the file with all of its space, and return a handle; it appears complete or not at all."""
        draft = draft_of(self._path)
        draft.unlink(missing_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, 2 * SLOT_BYTES)
            draft.rename(self._path)
        except OSError:
            os.close(handle)
            draft.unlink(missing_ok=True)
            raise
        return handle


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
