"""The records that flow from submission to the end of a job, one per stage, each made in one place.

    JobRequest -> (ModelProfile) -> MemoryEstimate -> Rewrite/Booking -> Placement -> Outcome

All are frozen: a later stage makes its own record and never writes to an earlier one. Sizes are bytes. None means
"not known" or "does not apply", as each attribute says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

BookingKind = Literal["shared", "whole"]
BookingBasis = Literal["asked", "estimate", "history"]
Confidence = float | Literal["bound", "auto"]
"""Share of jobs that what is booked shall be enough for: a number, the estimator's own bound, or what costs least."""
LEAST_CONFIDENCE, MOST_CONFIDENCE = 0.5, 0.999
"""Estimates tell their quantiles from the one to the other."""
PolicyName = Literal["exclusive", "round_robin", "magm", "lug", "mug"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GresItem:
    """One generic resource of a request, e.g. `gres/gpu:a100:2`.

    Attributes:
        name: "gpu", "shard", "mps", ...
        type: The type the user named ("a100", "1g.10gb"), or None.
        count: How many; 1 if the request states no number.
    """

    name: str
    type: str | None = None
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What a user asked for, as the job_submit hook saw it.

    Attributes:
        user_id: The submitting user.
        partition: Partition name; None if the user left it to Slurm's default.
        gres: Per-node GRES (`--gres`, `--gpus-per-node`).
        gres_per_job: Per-job GRES (`--gpus`).
        gres_per_task: Per-task GRES (`--gpus-per-task`).
        gres_per_socket: Per-socket GRES (`--gpus-per-socket`).
        cpus_per_gpu: `--cpus-per-gpu`, or None.
        memory_per_gpu_mib: `--mem-per-gpu` (host memory), or None.
        nodes: Least number of nodes; None if not stated.
        tasks: Number of tasks; None if not stated.
        comment: The user's comment as submitted, stamps included.
        script: Leading part of the batch script; None for salloc and srun.
        heterogeneous: One component of a heterogeneous job.
        interactive: From srun or salloc: its request was settled on the login node, and may not change any more.
        other_gres: What `--gres` asks for besides GPUs and shards ("nvme:100"); it is kept.
        other_per_task: What is asked per task besides GPUs, as Slurm wrote it ("cpu=4"); it is kept.
        binds_gpus: `--gpu-bind`, which means nothing for part of a GPU.
        gpu_only_option: An option that works only with gres/gpu ("--gpu-freq"), or None.
    """

    user_id: int
    partition: str | None = None
    gres: tuple[GresItem, ...] = ()
    gres_per_job: tuple[GresItem, ...] = ()
    gres_per_task: tuple[GresItem, ...] = ()
    gres_per_socket: tuple[GresItem, ...] = ()
    cpus_per_gpu: int | None = None
    memory_per_gpu_mib: int | None = None
    nodes: int | None = None
    tasks: int | None = None
    comment: str = ""
    script: str | None = None
    heterogeneous: bool = False
    interactive: bool = False
    other_gres: str = ""
    other_per_task: str = ""
    binds_gpus: bool = False
    gpu_only_option: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What the user says about the job in `#RAD` lines or in the comment; a hint, never the truth.

    Attributes:
        profile: Compact model profile (gpumemnet's text form), or None.
        memory_bytes: `memory=12G`: the need stated outright, or None.
        policy: `policy=exclusive|collocate`, or None.
        retry: False if `retry=no`: no recovery after running out of memory.
        gpus: `gpus=2`: processes of a data-parallel job, or None.
        confidence: `confidence=0.9|auto|bound`: how safe the booking shall be, or None.
    """

    profile: str | None = None
    memory_bytes: int | None = None
    policy: Literal["exclusive", "collocate"] | None = None
    retry: bool = True
    gpus: int | None = None
    confidence: Confidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """GPU memory of one process of a job at its peak, as nvidia-smi would show it.

    Attributes:
        estimate_bytes: The best guess.
        upper_bytes: The bound.
        confidence: Share of jobs that stay under the bound; None if no measurement says it.
        quantiles: Points (share of jobs, bytes that so many stay under) between estimate and bound, both rising; ()
            if none are known.
        smact: Expected share of SMs kept busy when it has a GPU to itself (0 to 1); None if nothing tells.
        source: Where it comes from: an estimator's name, "history", "stated".
        profile_key: Short hash of model and training setup; None if the need was stated outright.
        warnings: One sentence each, for the user.
    """

    estimate_bytes: int
    upper_bytes: int
    confidence: float | None
    source: str
    quantiles: tuple[tuple[float, int], ...] = ()
    smact: float | None = None
    profile_key: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """What a job may use, from submission to its end; it travels in the job's comment, signed (see wire.py).

    A job has three numbers of memory for each GPU: the estimate, what is booked, and the cap.

    Attributes:
        kind: "shared": part of one GPU. "whole": GPUs of its own.
        gpus: GPUs on each node; 1 for a shared job.
        memory_bytes: Booked GPU memory per GPU, which is the job's for sure; None for a whole GPU.
        cap_bytes: What it may hold at most per GPU, while others leave it there; None if no more than it booked.
        estimate_bytes: The best guess behind both; None if there was none.
        smact: Expected share of SMs kept busy (0 to 1); None if nothing tells.
        recoveries: How often the job was requeued after running out of memory.
        retry: Whether it may be recovered again.
        profile_key: Hash under which the observed peak is remembered; None if there is no profile.
        basis: Who is answerable for the size: "estimate" (ours), "history" (earlier runs of the same user and model),
            or "asked": the user stated it or gave us nothing to go by.
        shards: Shards that it asks Slurm for on each node; 0 if it asks for GPUs.
        partitions: Marks of the partitions that it may start in (binding.py).
        changed: Whether only Slurm knows what it gives: the request was changed since, or is spelled in several ways.
    """

    kind: BookingKind
    gpus: int = 1
    memory_bytes: int | None = None
    cap_bytes: int | None = None
    estimate_bytes: int | None = None
    smact: float | None = None
    recoveries: int = 0
    retry: bool = True
    profile_key: str | None = None
    basis: BookingBasis = "asked"
    shards: int = 0
    partitions: tuple[str, ...] = ()
    changed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What to change in a submission.

    Attributes:
        fields: job_desc fields to set, by their Lua name; "" clears one. Empty means: leave the job alone.
        environment: Variables to set in a batch job's environment; "" blanks one.
        messages: Lines for the user.
        refusal: Why the job is refused, with the number that would fit; None if it is not.
        booking: What the rewritten job books; None if the job is left alone.
        reason: A word or two for log and metrics: "shared", "exclusive", "multi-gpu", "no gpu", "observe", ...
    """

    fields: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    messages: tuple[str, ...] = ()
    refusal: str | None = None
    booking: Booking | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What one job holds on one node.

    Attributes:
        job_id: Slurm's job id (each array task has its own).
        user_id: The job's owner.
        kind: "shared" or "whole".
        gpus: UUIDs of the physical GPUs.
        seats: The GPU indices that Slurm booked; they may name other physical GPUs than `gpus`.
        booked_bytes: Booked memory on each GPU; for a whole GPU all that is usable.
        cap_bytes: What it may hold at most on each; None if no more than it booked, as in rows of older releases.
        created_s: Seconds since the node's boot, on the clock that never jumps.
        estimate_bytes: The best guess behind the booking, or None.
        profile_key: Hash of the job's profile, or None.
        smact: Expected or, once known, observed share of SMs kept busy (0 to 1), or None.
        restart: Slurm's restart count of the run that holds it.
        partition: The partition it runs in, by which the monitor finds what to do about it; "" if unknown.
        settled: Whether it gave back what it turned out not to need. It may still hold its cap, but nothing is kept
            free for that.
        managed: False for a job that runs as without us: it is only noted here, as Slurm gave it, for others to keep
            clear of it.
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
    settled: bool = False
    managed: bool = True

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The GPUs chosen for a job, or why it cannot start now.

    Attributes:
        gpus: UUIDs in the order in which the job sees them; empty if the job is put back or left alone.
        reason: Policy and figures behind the choice, for the log.
        put_back: True if the job must return to the queue, because nothing it may use is free.
        cap_bytes: What a shared job may hold at most there; None if no more than it booked.
    """

    gpus: tuple[str, ...]
    reason: str
    put_back: bool = False
    cap_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What rad-monitor found of a job while it ran.

    Attributes:
        kind: "overrun": it held more than it booked. "victim": it failed through another's fault.
        culprit: Job id of whoever was at fault; None if that is no job.
        culprit_user_id: The culprit's owner; None if unknown.
        rerun: Whether a job that held more than it booked is to run again (`on_overrun = "requeue"`).
        detail: One sentence for the job's AdminComment and the log.
    """

    kind: Literal["overrun", "victim"]
    culprit: int | None = None
    culprit_user_id: int | None = None
    rerun: bool = False
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
    """

    kind: Literal["ok", "failed", "gpu-oom", "host-oom", "cancelled", "victim", "overrun"]
    evidence: str | None = None
    pattern: str | None = None
    attempted_bytes: int | None = None
    peak_bytes: int | None = None
    corroborated: bool = False
    culprit: int | None = None
    rerun: bool = False


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
