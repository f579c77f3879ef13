"""Read a file that a user names, safely and without delay, whatever it is."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from gpumemnet.errors import SummaryError
from gpumemnet.units import MIB

MAX_BYTES = 8 * MIB
"""A summary of 20,000 layers has about 3 MB; a much larger file is something else."""


def read_text(path: str | Path) -> str:
    """Read a small text file.

    Args:
        path: The path given by the user. A symbolic link is followed; a FIFO or device is not read.

    Returns:
        The text with its line ends, without a byte order mark.

    Raises:
        SummaryError: Missing, unreadable, not a regular file, too large, or not text.
    """
    return text_of(read_bytes(path), str(path))


def read_bytes(path: str | Path) -> bytes:
    """Read a small file.

    Raises:
        SummaryError: Missing, unreadable, not a regular file, or too large.
    """
    name = str(path)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError as exc:
        raise SummaryError(path=name, problem="no such file", fix="check the path") from exc
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else "not a file name"
        fix = "check the path and its permissions"
        if isinstance(exc, PermissionError) and os.path.exists(name) and os.stat(name).st_uid == os.geteuid():
            fix = f"run: chmod u+r {shlex.quote(name)}"
        raise SummaryError(path=name, problem=reason.lower(), fix=fix) from exc
    try:
        return _read(descriptor, name)
    finally:
        os.close(descriptor)


def text_of(data: bytes, name: str) -> str:
    """Return the text of a file with its line ends, without a byte order mark.

    Args:
        data: Its bytes.
        name: What the message calls it.

    Raises:
        SummaryError: It is not text.
    """
    if b"\0" in data:
        if encoding := _sixteen_bits(data):
            return data.decode(encoding, errors="replace").removeprefix("\ufeff")
        raise SummaryError(
            path=name, problem="not text (it contains zero bytes)", fix="save the summary as plain text"
        )
    return data.decode("utf-8", errors="replace").removeprefix("\ufeff")


def _sixteen_bits(data: bytes) -> str:
    """Return the encoding of a text with two bytes per letter, as saved by PowerShell; "" if it is none."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    first, second = data[0::2].count(0), data[1::2].count(0)
    for encoding, high, low in (("utf-16-le", second, first), ("utf-16-be", first, second)):
        if high > len(data) // 4 and high > 4 * low:  # the lines of a table's tree have zero low bytes
            return encoding
    return ""


def _read(descriptor: int, name: str) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise SummaryError(path=name, problem="not a regular file", fix="name a text file")
    if status.st_size > MAX_BYTES:
        raise SummaryError(
            path=name,
            problem=f"{status.st_size // MIB} MiB is too large for a model summary",
            fix="save only the printed summary",
        )
    chunks: list[bytes] = []
    left = MAX_BYTES + 1
    try:
        while left > 0 and (chunk := os.read(descriptor, min(left, MIB))):
            chunks.append(chunk)
            left -= len(chunk)
    except OSError as exc:
        raise SummaryError(
            path=name, problem=(exc.strerror or "unreadable").lower(), fix="check the file"
        ) from exc
    if left <= 0:
        raise SummaryError(
            path=name, problem="too large for a model summary", fix="save only the printed summary"
        )
    return b"".join(chunks)
