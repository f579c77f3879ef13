"""Records of a job on its node, from the Prolog to its end; those of its submission are in `submission.py`.

    Booking -> Demand -> Allocation/Placement -> Diagnosis -> Outcome -> Recovery

All are frozen; sizes are bytes. None means "not known" or "does not apply", as each attribute says.
"""

from __future__ import annotations

from typing import Literal

from gpumemnet.records import frozen
from slurm_plugin.core.records.submission import Booking, BookingKind


@frozen
class Allocation:
    """Allocation of one job on one node.

    Attributes:
        job_id: Slurm's job id (each array task has its own).
        user_id: The job's user.
        kind: "shared" or "whole".
        gpus: UUIDs of the physical GPUs; of a shared job in the order of its Slurm GPU indices.
        gpu_indices: The GPU indices that Slurm allocated; they may name other physical GPUs than `gpus`.
        booked_bytes: Booked memory on each GPU; for a whole GPU all usable memory.
        cap_bytes: Its limit on each GPU; None if that is the booking.
        created_s: Seconds since the node's boot, on the monotonic clock.
        estimate_bytes: The estimate behind the booking, or None.
        profile_key: Hash of the job's profile, or None.
        smact: Expected or, once known, observed share of SMs kept busy (0 to 1), or None.
        restart: Slurm's restart count of the run that has it.
        partition: The partition it runs in, by which the monitor finds its settings; "" if unknown.
        managed: False for a job that RAD does not manage: its allocation by Slurm is only recorded, so that managed
            jobs avoid its GPUs.
        uncapped: Whether it was to run under MPS and that did not start: only the guard enforces its booking.
        server: Key of the MPS server that it was placed for (placement/server_keys.py); "" without MPS.
    """

    job_id: int
    user_id: int
    kind: BookingKind
    gpus: tuple[str, ...]
    gpu_indices: tuple[int, ...]
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
    server: str = ""

    def gpu_indices_on(self, gpu: str) -> frozenset[int]:
        """Return the Slurm GPU indices of a physical GPU: if a job shares several GPUs, one index each, in order."""
        if self.kind == "shared" and len(self.gpu_indices) == len(self.gpus) and gpu in self.gpus:
            return frozenset({self.gpu_indices[self.gpus.index(gpu)]})
        return frozenset(self.gpu_indices)

    @property
    def part_of_one_gpu(self) -> bool:
        """Return whether it can run under MPS: a process has one server, and RAD's servers serve one GPU each."""
        return self.kind == "shared" and len(self.gpus) == 1

    @property
    def limit_bytes(self) -> int:
        """Return its limit on each GPU."""
        return max(self.booked_bytes, self.cap_bytes or 0)


@frozen
class Demand:
    """Request of the Prolog to the placement.

    Attributes:
        job_id: Slurm's job id.
        user_id: The job's user.
        kind: "shared" or "whole".
        gpus: Number of GPUs on this node.
        booked_bytes: Memory to reserve; None if the need is unknown or whole GPUs are requested.
        gpu_indices: The GPU indices that Slurm allocated.
        cap_bytes: Its limit; None if that is its booking.
        estimate_bytes: The estimate behind the booking, or None.
        profile_key: Hash of the job's profile, or None.
        smact: Expected share of SMs kept busy (0 to 1), or None.
        restart: Slurm's restart count of this run.
        uncapped: Whether MPS has not started for it.
        processes: Number of its processes on each GPU, as far as its request shows.
        own_server: Whether it shares its MPS server with no other job.
        server: Key of its MPS server; "" without MPS.
        quarantine: Why that is not the server of its partition's `mps_server`; "" if it is.
    """

    job_id: int
    user_id: int
    kind: BookingKind
    gpus: int
    booked_bytes: int | None
    gpu_indices: tuple[int, ...]
    cap_bytes: int | None = None
    estimate_bytes: int | None = None
    profile_key: str | None = None
    smact: float | None = None
    restart: int = 0
    uncapped: bool = False
    processes: int = 1
    own_server: bool = False
    server: str = ""
    quarantine: str = ""


@frozen
class Placement:
    """The GPUs chosen for a job, or why it cannot start now.

    Attributes:
        gpus: UUIDs in the order in which the job sees them; empty if the job is requeued or not managed.
        reason: Policy and figures behind the choice, for the log.
        requeue: True if the job must be requeued, because no GPU that it may use is free.
        cap_bytes: Limit of a shared job there; None if that is its booking.
        overrun_gpus: UUIDs of as many GPUs as a requeued job lacks, on which other jobs use more than they booked.
        unlimited: True if it is requeued only because it, or a job on the same GPU, would have no enforced limit.
        lingers: True if it is requeued although it fits by bookings: jobs that use the rest may be ending.
    """

    gpus: tuple[str, ...]
    reason: str
    requeue: bool = False
    cap_bytes: int | None = None
    overrun_gpus: tuple[str, ...] = ()
    unlimited: bool = False
    lingers: bool = False


@frozen
class Diagnosis:
    """What rad-monitor found out about a running job.

    Attributes:
        kind: "overrun": it used more than it booked. "idle": it computed nothing for too long. "victim": another job or
            process made it fail.
        culprit: Id of the job at fault; None if that is no job.
        culprit_user_id: The culprit's user; None if unknown.
        rerun: Whether a job that was stopped is to run again (`on_overrun`, `idle_action`).
        server_ends: Number of this unexplained end of an MPS server among those of this job; 0 if it is none.
        detail: One sentence for the job's AdminComment and the log.
    """

    kind: Literal["overrun", "idle", "victim"]
    culprit: int | None = None
    culprit_user_id: int | None = None
    rerun: bool = False
    server_ends: int = 0
    detail: str = ""


@frozen
class Outcome:
    """How a job ended on a node.

    Attributes:
        kind: "ok", "failed" (its own fault), "gpu-oom", "host-oom", "cancelled", "victim" (another's fault),
            "overrun" (stopped for using more than it booked), "idle" (stopped for computing nothing).
        evidence: The line that shows it, shortened; None if there is none.
        pattern: Name of the pattern that matched; None if none did.
        attempted_bytes: Size of the failed allocation, if the message states it.
        peak_bytes: Peak GPU memory that the monitor saw; None without a monitor.
        corroborated: Whether the monitor's record agrees with the job's output or the verdict.
        culprit: Id of the job at fault for a victim; None if that is no job.
        rerun: Whether a job that was stopped is to run again.
        server_ends: As a verdict's.
    """

    kind: Literal["ok", "failed", "gpu-oom", "host-oom", "cancelled", "victim", "overrun", "idle"]
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
        """Return the least that it needs: its peak plus the failed allocation; 0 if neither is known."""
        return (self.peak_bytes or 0) + (self.attempted_bytes or 0)


@frozen
class Recovery:
    """The next attempt of a job that failed through a fault of RAD or of another job.

    Attributes:
        booking: What the rerun books.
        boost_priority: Whether the rerun may get a priority boost until it starts; radd decides how much and how often.
        reason: One sentence for the job's AdminComment and the log.
    """

    booking: Booking
    boost_priority: bool
    reason: str
