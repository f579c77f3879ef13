"""radd's reply to a submission, and its log line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumemnet.records import frozen
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.errors import WireError
from slurm_plugin.core.records.submission import Booking, JobRequest, MemoryEstimate, Rewrite
from slurm_plugin.core.text import one_line
from slurm_plugin.core.units import to_mib_up

Reply = dict[str, Any]

VERSION = 1

LONGEST_MESSAGE = 500
"""Characters of a line for the user; it may quote what the user wrote."""


@frozen
class Decided:
    """The decision on one submission.

    Attributes:
        request: What was requested.
        rewrite: What changes.
        estimate: The need of one process; None if unknown.
        faults: Lines about directives that could not be understood.
    """

    request: JobRequest
    rewrite: Rewrite
    estimate: MemoryEstimate | None = None
    faults: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[str, ...]:
        """Return the lines for the user."""
        return tuple(one_line(text, LONGEST_MESSAGE) for text in (*self.faults, *self.rewrite.messages))

    @property
    def refusal(self) -> str | None:
        """Return why the job is refused; None if it is not."""
        refusal = self.rewrite.refusal
        return None if refusal is None else one_line(refusal, LONGEST_MESSAGE)


def reply_of(made: Decided, *, key: bytes) -> Reply:
    """Return the reply to a submission.

    Args:
        made: The decision and its request.
        key: The cluster's key, which signs the booking.
    """
    request, rewrite = made.request, made.rewrite
    fields = dict(rewrite.fields)
    if rewrite.booking is not None:
        signed = signed_comment.signed_booking(rewrite.booking, user_id=request.user_id, key=key)
        fields["comment"] = signed_comment.with_signed_booking(request.comment.words, signed)
    elif request.comment.profile is not None:
        fields["comment"] = request.comment.words  # the profile is not needed
    return {
        "v": VERSION,
        "set": fields,
        "env": rewrite.environment,
        "say": list(made.messages),
        "refuse": made.refusal,
        "log": log_line(request, rewrite, made.estimate),
    }


def log_line(request: JobRequest, rewrite: Rewrite, estimate: MemoryEstimate | None) -> str:
    """Return one line of key=value pairs about a decision.

    Args:
        request: What the job requests.
        rewrite: What it gets.
        estimate: What it needs; None if unknown.
    """
    values: dict[str, object] = {
        "user": request.user_id,
        "partition": request.partition,
        "decision": rewrite.reason,
        "gres": rewrite.each_gpu or rewrite.fields.get("gres"),
        "refused": "yes" if rewrite.refusal else None,
    }
    booking: Booking | None = rewrite.booking
    if booking is not None:
        values |= {"kind": booking.kind, "gpus": booking.gpus}
        values["booked_mib"] = None if booking.memory_bytes is None else to_mib_up(booking.memory_bytes)
    if estimate is not None:
        values |= {
            "estimate_mib": to_mib_up(estimate.estimate_bytes),
            "upper_mib": to_mib_up(estimate.upper_bytes),
        }
        values |= {"source": estimate.source, "profile": estimate.profile_key}
        values["learned"] = "yes" if estimate.learned else None
    # A space within a value, such as a partition that a user made up, would forge a further pair.
    return " ".join(
        f"{name}={'-'.join(str(value).split())}" for name, value in values.items() if value is not None
    )


def checked_version(message: Mapping[str, Any]) -> None:
    """Refuse a message of another protocol.

    Raises:
        WireError: The shim and radd are of different versions.
    """
    if message.get("v") != VERSION:
        raise WireError(
            f"the shim speaks version {message.get('v')!r} and radd {VERSION}; install both again"
        )
