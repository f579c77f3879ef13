"""What a job books, as the policy decides it: whose size it is, for how many processes, on what."""

from __future__ import annotations

from dataclasses import replace

from slurm_plugin.core.booking.gres_text import count_of
from slurm_plugin.core.records.submission import (
    Booking,
    BookingBasis,
    Claims,
    JobRequest,
    MemoryEstimate,
)


def gpus_of(request: JobRequest) -> int:
    """Return the GPUs of a one-node job, in whichever way they were asked for; 0 if it asks for none.

    Args:
        request: What the user asked for.
    """
    return max(
        count_of(request.gres, "gpu"),
        count_of(request.gres_per_job, "gpu"),
        count_of(request.gres_per_task, "gpu") * (request.tasks or 1),
        count_of(request.gres_per_socket, "gpu"),
    )


def processes_of(request: JobRequest, claims: Claims, gpus: int = 1) -> int:
    """Return how many processes share one GPU.

    Args:
        request: What the user asked for.
        claims: What the user says about the job.
        gpus: GPUs of the job, over which its processes are spread.
    """
    return -(-max(request.tasks or 1, claims.gpus or 1) // max(gpus, 1))


def shared(
    booked_bytes: int, request: JobRequest, claims: Claims, estimate: MemoryEstimate | None
) -> Booking:
    """Return the booking of part of one GPU.

    Args:
        booked_bytes: Of its memory.
        request: What the user asked for.
        claims: What the user says about the job.
        estimate: The need of one process; None if it is unknown.
    """
    booking = replace(whole(1, request, claims, estimate), kind="shared", memory_bytes=booked_bytes)
    if estimate is None:
        return booking
    return replace(booking, estimate_bytes=booking.processes * estimate.estimate_bytes)


def whole(gpus: int, request: JobRequest, claims: Claims, estimate: MemoryEstimate | None) -> Booking:
    """Return the booking of GPUs of its own.

    Args:
        gpus: On each node.
        request: What the user asked for.
        claims: What the user says about the job.
        estimate: The need of one process; None if it is unknown.
    """
    processes = processes_of(request, claims, gpus)
    smact = None if estimate is None else estimate.smact
    return Booking(
        kind="whole",
        gpus=gpus,
        processes=processes,
        estimate_bytes=None if estimate is None else estimate.estimate_bytes,
        smact=None if smact is None else min(processes * smact, 1.0),
        retry=claims.retry,
        profile_key=None if estimate is None else estimate.profile_key,
        basis=_basis(estimate),
    )


def _basis(estimate: MemoryEstimate | None) -> BookingBasis:
    """Return who is answerable if the need turns out larger."""
    if estimate is None or estimate.source == "stated":
        return "asked"
    return "history" if estimate.source == "history" else "estimate"


def by_hand(booking: Booking) -> Booking:
    """Return the booking of a size that the user chose, whatever we would have said."""
    return replace(booking, basis="asked")


def spoken(claims: Claims) -> bool:
    """Return whether the user said anything to us, and so expects an answer."""
    return claims != Claims()
