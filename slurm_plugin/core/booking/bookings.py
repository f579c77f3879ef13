"""Bookings of jobs: origin of the size, number of processes, part of a GPU or whole GPUs."""

from __future__ import annotations

from gpumemnet.records import replace
from slurm_plugin.core.booking.gres_text import count_of
from slurm_plugin.core.records.submission import (
    Booking,
    BookingBasis,
    JobRequest,
    MemoryEstimate,
    UserDirectives,
)


def gpus_of(request: JobRequest) -> int:
    """Return the number of GPUs of a one-node job, in whichever way they were requested; 0 if it requests none."""
    return max(
        count_of(request.gres, "gpu"),
        count_of(request.gres_per_job, "gpu"),
        count_of(request.gres_per_task, "gpu") * (request.tasks or 1),
        count_of(request.gres_per_socket, "gpu"),
    )


def processes_of(request: JobRequest, stated: UserDirectives, gpus: int = 1) -> int:
    """Return how many processes share one GPU.

    Args:
        request: The user's request.
        stated: The user's directives.
        gpus: GPUs of the job, over which its processes are spread.
    """
    return -(-max(request.tasks or 1, stated.gpus or 1) // max(gpus, 1))


def shared(
    booked_bytes: int, request: JobRequest, stated: UserDirectives, estimate: MemoryEstimate | None
) -> Booking:
    """Return the booking of part of one GPU.

    Args:
        booked_bytes: Booked memory of that GPU.
        request: The user's request.
        stated: The user's directives.
        estimate: The need of one process; None if it is unknown.
    """
    booking = replace(whole(1, request, stated, estimate), kind="shared", memory_bytes=booked_bytes)
    if estimate is None:
        return booking
    return replace(booking, estimate_bytes=booking.processes * estimate.estimate_bytes)


def whole(gpus: int, request: JobRequest, stated: UserDirectives, estimate: MemoryEstimate | None) -> Booking:
    """Return the booking of exclusive GPUs.

    Args:
        gpus: Number on each node.
        request: The user's request.
        stated: The user's directives.
        estimate: The need of one process; None if it is unknown.
    """
    processes = processes_of(request, stated, gpus)
    smact = None if estimate is None else estimate.smact
    return Booking(
        kind="whole",
        gpus=gpus,
        processes=processes,
        estimate_bytes=None if estimate is None else estimate.estimate_bytes,
        smact=None if smact is None else min(processes * smact, 1.0),
        retry=stated.retry,
        own_server=stated.own_server,
        profile_key=None if estimate is None else estimate.profile_key,
        basis=_basis(estimate),
    )


def _basis(estimate: MemoryEstimate | None) -> BookingBasis:
    """Return the origin of the size, which decides how a job that needs more is treated."""
    if estimate is None or estimate.source == "stated":
        return "requested"
    return "history" if estimate.source == "history" else "estimate"


def by_hand(booking: Booking) -> Booking:
    """Return the booking with its size marked as chosen by the user, whatever RAD would have booked."""
    return replace(booking, basis="requested")


def if_stated(stated: UserDirectives, message: str) -> tuple[str, ...]:
    """Return the message of a decision; nothing for a user that gave RAD no directive, and expects none.

    Args:
        stated: The user's directives.
        message: The decision in words.
    """
    return () if stated == UserDirectives() else (message,)
