"""The records of a job on its node, from the Prolog to its end; those of its submission stand in `records.py`.

    Booking -> Demand -> Reservation/Placement -> Verdict -> Outcome -> Recovery

All are frozen; sizes are bytes. None means "not known" or "does not apply", as each attribute says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_plugin.core.records.submission import Booking, BookingKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What one job holds on one node.

    Attributes:
        job_id: Slurm's job id (each array task has its own).
        user_id: The job's owner.
        kind: "shared" or "whole".
        gpus: UUIDs of the physical GPUs; of a shared job in the order of its seats.
        seats: The GPU indices that Slurm booked; they may name other physical GPUs than `gpus`.
        booked_bytes: Booked memory on each GPU; for a whole GPU all that is usable.
        cap_bytes: What it may hold at most on each; None if no more than it booked, as in rows of older releases.
        created_s: Seconds since the node's boot, on the clock that never jumps.
        estimate_bytes: The best guess behind the booking, or None.
        profile_key: Hash of the job's profile, or None.
        smact: Expected or, once known, observed share of SMs kept busy (0 to 1), or None.
        restart: Slurm's restart count of the run that holds it.
        partition: The partition it runs in, by which the monitor finds what to do about it; "" if unknown.
        managed: False for a job that runs as without us: it is only noted here, as Slurm gave it, for others to keep
            clear of it.
        uncapped: Whether it was to run under MPS and that did not start: only the guard holds it to what it booked.
    """

    job_id: int
    user_id: int
    kind: BookingKind
    gpus: tuple[str, ...]
    seats: tuple[int, ...]
    booked_bytes: int
    created_s: float
    cap_bytes: int | None = None
    estimate_bytes: int | None = None
    profile_key: str | None = None
    smact: float | None = None
    restart: int = 0
    partition: str = ""
    managed: bool = True
    uncapped: bool = False

    def seats_on(self, gpu: str) -> frozenset[int]:
        """Return the seats whose room a GPU is: where a job shares several, each GPU stands for one seat, in order."""
        if self.kind == "shared" and len(self.seats) == len(self.gpus) and gpu in self.gpus:
            return frozenset({self.seats[self.gpus.index(gpu)]})
        return frozenset(self.seats)

    @property
    def part_of_one_gpu(self) -> bool:
        """Return whether it can run under MPS: a process has one server, and ours serve one GPU each."""
        return self.kind == "shared" and len(self.gpus) == 1

    @property
    def limit_bytes(self) -> int:
        """Return what it may hold at most on each GPU."""
        return max(self.booked_bytes, self.cap_bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the prolog asks the placement for.

    Attributes:
        job_id: Slurm's job id.
        user_id: The job's owner.
        kind: "shared" or "whole".
        gpus: Number of GPUs on this node.
        booked_bytes: Memory to reserve; None if the need is unknown or whole GPUs are wanted.
        seats: The GPU indices that Slurm booked.
        cap_bytes: What it may hold at most; None if no more than it reserves.
        estimate_bytes: The best guess behind the booking, or None.
        profile_key: Hash of the job's profile, or None.
        smact: Expected share of SMs kept busy (0 to 1), or None.
        restart: Slurm's restart count of this run.
        uncapped: Whether MPS has not started for it.
    """

    job_id: int
    user_id: int
    kind: BookingKind
    gpus: int
    booked_bytes: int | None
    seats: tuple[int, ...]
    cap_bytes: int | None = None
    estimate_bytes: int | None = None
    profile_key: str | None = None
    smact: float | None = None
    restart: int = 0
    uncapped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The GPUs chosen for a job, or why it cannot start now.

    Attributes:
        gpus: UUIDs in the order in which the job sees them; empty if the job is put back or left alone.
        reason: Policy and figures behind the choice, for the log.
        put_back: True if the job must return to the queue, because nothing it may use is free.
        cap_bytes: What a shared job may hold at most there; None if no more than it booked.
        owed: UUIDs of as many GPUs as a job that is put back lacks, on which others hold more than they booked.
        unheld: True if it is put back only because nothing would hold it, or a neighbour, to what was booked.
        lingers: True if it is put back and yet would fit by what is booked: who holds the rest may be ending.
    """

    gpus: tuple[str, ...]
    reason: str
    put_back: bool = False
    cap_bytes: int | None = None
    owed: tuple[str, ...] = ()
    unheld: bool = False
    lingers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What rad-monitor found of a job while it ran.

    Attributes:
        kind: "overrun": it held more than it booked. "victim": it failed through another's fault.
        culprit: Job id of whoever was at fault; None if that is no job.
        culprit_user_id: The culprit's owner; None if unknown.
        rerun: Whether a job that held more than it booked is to run again (`on_overrun = "requeue"`).
        server_ends: Which end of an MPS server it is that nobody can explain, of this job's; 0 if it is none.
        detail: One sentence for the job's AdminComment and the log.
    """

    kind: Literal["overrun", "victim"]
    culprit: int | None = None
    culprit_user_id: int | None = None
    rerun: bool = False
    server_ends: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended on a node.

    Attributes:
        kind: "ok", "failed" (its own fault), "gpu-oom", "host-oom", "cancelled", "victim" (another's fault),
            "overrun" (stopped for holding more than it booked).
        evidence: The line that shows it, cut short; None if there is none.
        pattern: Name of the pattern that matched; None if none did.
        attempted_bytes: What the failing allocation asked for, if the message says so.
        peak_bytes: Highest GPU memory that the monitor saw of the job; None without a monitor.
        corroborated: Whether the monitor's record agrees with what the job's output or the verdict says.
        culprit: Job id of whoever was at fault for a victim; None if that is no job.
        rerun: Whether an overrun is followed by another run.
        server_ends: As a verdict's.
    """

    kind: Literal["ok", "failed", "gpu-oom", "host-oom", "cancelled", "victim", "overrun"]
    evidence: str | None = None
    pattern: str | None = None
    attempted_bytes: int | None = None
    peak_bytes: int | None = None
    corroborated: bool = False
    culprit: int | None = None
    rerun: bool = False
    server_ends: int = 0

    @property
    def least_bytes(self) -> int:
        """Return what it needs at least: what it held and what it asked for on top; 0 if neither is known."""
        return (self.peak_bytes or 0) + (self.attempted_bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The next attempt of a job that failed through a fault of ours or of a neighbour.

    Attributes:
        booking: What the rerun books.
        lend_priority: Whether the rerun may be lent priority until it starts; radd decides how much and how often.
        reason: One sentence for the job's AdminComment and the log.
    """

    booking: Booking
    lend_priority: bool
    reason: str
