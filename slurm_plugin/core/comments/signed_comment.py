"""The signed booking in the job's comment: the one channel from submission to the node that every Slurm has.

A user can edit the comment, so the booking carries a message authentication code under the cluster's key, over the
job's user and the booking, which names the request (`ask`) and the partitions (`part`) that it is for. A signed booking
(a `signed_booking` in the code) that does not verify is ignored. The user's own text is kept in front:

    my own words rad2:shared:gpus=1:mem=12288:est=10432:try=0:retry=1:src=e:ask=12:part=aacd834e:5d1c0a9b8e7f6a5b

Before the rewrite, the same comment may carry the model profile that the login node read (`rad.profile:...`).
"""

from __future__ import annotations

import re
from pathlib import Path

from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.files.regular import opened
from slurm_plugin.core.records.submission import (
    Booking,
    BookingBasis,
    BookingKind,
    JobComment,
    RequestedTasks,
)
from slurm_plugin.core.units import from_mib, to_mib_up

COMMENT_LIMIT = 1024
"""Longest comment that Slurm keeps (slurm.h, MAX_COMMENT_LEN in effect since 22.05)."""

KEY_BYTES = 32
THOUSAND = 1000
"""Shares are stored in thousandths: a signed booking has only whole numbers."""
_MAC_HEX = 16  # 64 bits: a forger gets one try a submission, and slurmctld takes some hundred a second
_SIGNED = re.compile(r"(?:^| )rad2:(shared|whole):([A-Za-z0-9=:.]{1,240}):([0-9a-f]{16})(?= |$)")
_PROFILE = re.compile(r"(?:^| )rad\.profile:([A-Za-z0-9._~-]{1,700})(?= |$)")
_FIELDS = (
    *("gpus", "procs", "mem", "cap", "est", "sm", "try", "retry", "key", "src"),
    *("ask", "tasks", "part", "own", "changed", "node"),
)
_BASES: dict[str, BookingBasis] = {"e": "estimate", "h": "history"}
"""Origin of the size; without one the user chose it."""


def read_key(path: Path) -> bytes:
    """Return the cluster's key.

    Raises:
        ConfigError: The file is missing, too short, readable by others or not readable by this user.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path}: other users can read the cluster key; run: chmod 600 {path}")
        with open(path, "rb", opener=opened) as file:
            key = file.read()
    except PermissionError as exc:
        fix = f"run this as root, or as slurmctld's user, which must own it on the controller: chown slurm {path}"
        raise ConfigError(f"{path}: the cluster key cannot be read; {fix}") from exc
    except OSError as exc:
        raise ConfigError(f"{path}: no cluster key ({exc.strerror}); run: rad install --key") from exc
    if len(key) < KEY_BYTES:
        raise ConfigError(
            f"{path}: the cluster key is shorter than {KEY_BYTES} bytes; remove it and run: rad install --key"
        )
    return key


def fingerprint(key: bytes) -> str:
    """Return 8 hexadecimal digits that two equal keys share and that reveal neither.

    >>> fingerprint(b"a" * 32) == fingerprint(b"a" * 32) != fingerprint(b"b" * 32)
    True
    """
    return sign("fingerprint", key)[:8]


def signed_booking(booking: Booking, *, user_id: int, key: bytes) -> str:
    """Return the signed text form of a booking.

    Args:
        booking: The booking.
        user_id: The job's user, the only one for which it counts.
        key: The cluster's key, 32 bytes.
    """
    values = {
        "gpus": booking.gpus,
        "procs": booking.processes if booking.processes > 1 else None,
        "mem": None if booking.memory_bytes is None else to_mib_up(booking.memory_bytes),
        "cap": _cap_mib(booking),
        "est": None if booking.estimate_bytes is None else to_mib_up(booking.estimate_bytes),
        "sm": None if booking.smact is None else round(booking.smact * THOUSAND),
        "try": booking.recoveries,
        "retry": int(booking.retry),
        "key": booking.profile_key,
        "src": next((letter for letter, basis in _BASES.items() if basis == booking.basis), None),
        "ask": booking.shards or None,
        "tasks": _tasks_text(booking.by_task),
        "part": ".".join(booking.partitions) or None,
        "own": 1 if booking.own_server else None,
        "changed": 1 if booking.changed else None,
        "node": None if booking.by_node else 0,
    }
    body = ":".join(f"{name}={value}" for name, value in values.items() if value is not None)
    return f"rad2:{booking.kind}:{body}:{_mac(booking.kind, body, user_id, key)}"


def _tasks_text(requested: RequestedTasks | None) -> str | None:
    return None if requested is None else f"{requested.tasks}.{requested.cpus}.{int(requested.own_gpu)}"


def _tasks(text: str) -> RequestedTasks:
    tasks, cpus, own_gpu = map(int, text.split("."))
    return RequestedTasks(tasks=tasks, cpus=cpus, own_gpu=own_gpu == 1)


def _cap_mib(booking: Booking) -> int | None:
    """Return the limit if it differs from the booking; comments are short."""
    if booking.cap_bytes is None or booking.cap_bytes <= (booking.memory_bytes or 0):
        return None
    return to_mib_up(booking.cap_bytes)


def read_comment(text: str) -> JobComment:
    """Return the parts of a job's comment.

    Args:
        text: The comment, as Slurm has it.
    """
    signed = [match.group().strip() for match in _SIGNED.finditer(text)]
    # RAD's is the last one; the user may have written anything before it.
    return JobComment(words=user_words(text), profile=profile_in(text), signed=signed[-1] if signed else "")


def read_signed_booking(text: str, *, user_id: int, key: bytes) -> Booking | None:
    """Return the booking in a comment, or None if there is none that verifies for this user.

    Args:
        text: The job's comment.
        user_id: The job's user, as Slurm knows it.
        key: The cluster's key, 32 bytes.
    """
    return verified_booking(read_comment(text), user_id=user_id, key=key)


def verified_booking(comment: JobComment, *, user_id: int, key: bytes) -> Booking | None:
    """Return the booking in a comment, or None if there is none that verifies for this user.

    Args:
        comment: The job's comment.
        user_id: The job's user, as Slurm knows it.
        key: The cluster's key, 32 bytes.
    """
    found = _SIGNED.fullmatch(comment.signed)
    if found is None:
        return None
    import hmac  # a login node signs and verifies nothing

    kind, body, mac = found.groups()
    if not hmac.compare_digest(mac, _mac(kind, body, user_id, key)):
        return None
    return _booking_in(kind, body)


def shown_booking(text: str) -> Booking | None:
    """Return the booking in a comment as it is shown, verified or not: for display only."""
    found = _SIGNED.fullmatch(read_comment(text).signed)
    try:
        return None if found is None else _booking_in(found[1], found[2])
    except ValueError:
        return None  # not RAD's: its user wrote it


def _booking_in(kind: str, body: str) -> Booking | None:
    """Return the booking of a kind and its values; None if it has values that are unknown here.

    Raises:
        ValueError: A value is not a number.
    """
    values = dict(part.partition("=")[::2] for part in body.split(":"))
    if not set(values) <= set(_FIELDS):
        return None
    booking_kind: BookingKind = "shared" if kind == "shared" else "whole"
    return Booking(
        kind=booking_kind,
        gpus=int(values.get("gpus", "1")),
        processes=int(values.get("procs", "1")),
        memory_bytes=from_mib(int(values["mem"])) if "mem" in values else None,
        cap_bytes=from_mib(int(values["cap"])) if "cap" in values else None,
        estimate_bytes=from_mib(int(values["est"])) if "est" in values else None,
        smact=int(values["sm"]) / THOUSAND if "sm" in values else None,
        recoveries=int(values.get("try", "0")),
        retry=values.get("retry", "1") == "1",
        profile_key=values.get("key"),
        basis=_BASES.get(values.get("src", ""), "requested"),
        shards=int(values.get("ask", "0")),
        by_task=_tasks(values["tasks"]) if "tasks" in values else None,
        partitions=tuple(filter(None, values.get("part", "").split("."))),
        own_server="own" in values,
        changed="changed" in values,
        by_node="node" not in values,
    )


def with_signed_booking(comment: str, signed_text: str) -> str:
    """Return a comment with this signed booking and no other, after the user's text.

    The user's text is cut if both do not fit; the signed booking never is.

    Args:
        comment: The comment so far.
        signed_text: Result of `signed_booking`.
    """
    words = user_words(comment)
    left_bytes = COMMENT_LIMIT - 1 - len(signed_text.encode()) - 1
    if _size(words) > left_bytes:
        words = words.encode(errors="surrogateescape")[:left_bytes].decode(errors="ignore").rstrip()
    return f"{words} {signed_text}" if words else signed_text


def user_words(comment: str) -> str:
    """Return a comment without signed bookings: the user's text."""
    return _PROFILE.sub("", _SIGNED.sub("", comment)).strip()


def profile_in(comment: str) -> str | None:
    """Return the model profile that the login node put into a comment, or None."""
    match = _PROFILE.search(comment)
    return match.group(1) if match else None


def with_profile(comment: str, profile: str) -> str | None:
    """Return a comment with a model profile after the user's text; None if both do not fit.

    Args:
        comment: The comment so far.
        profile: `ModelProfile.to_text()`, at most 600 characters.
    """
    text = f"{user_words(comment)} rad.profile:{profile}".strip()
    return text if _size(text) < COMMENT_LIMIT else None


def _size(text: str) -> int:
    """Return the size of a comment in bytes; bytes that are not UTF-8 are kept as surrogates."""
    return len(text.encode(errors="surrogateescape"))


def _mac(kind: str, body: str, user_id: int, key: bytes) -> str:
    return sign(f"rad2|{user_id}|{kind}|{body}", key)


def sign(message: str, key: bytes) -> str:
    """Return the message authentication code of a message, as 16 hexadecimal digits.

    Args:
        message: Text to sign; it begins with the name of its kind, so that kinds cannot be confused.
        key: The cluster's key, 32 bytes.
    """
    import hashlib
    import hmac

    content = message.encode(errors="surrogateescape")
    return hmac.new(key, content, hashlib.sha256).hexdigest()[:_MAC_HEX]
