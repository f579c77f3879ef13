"""Records that pass from the submission to the end of a job, one per stage, each made in one place.

    JobRequest -> (ModelProfile) -> MemoryEstimate -> Rewrite/Booking -> Placement -> Outcome

All are frozen: a later stage makes its own record and never writes to an earlier one. Sizes are bytes. None means
"not known" or "does not apply", as each attribute says.
"""

from __future__ import annotations

from typing import Literal

from gpumemnet.records import field, frozen

BookingKind = Literal["shared", "whole"]
BookingBasis = Literal["requested", "estimate", "history"]
Confidence = float | Literal["bound"]
"""Share of jobs that a booking must be large enough for: a number, the estimator's bound, or what costs least."""
LEAST_CONFIDENCE, MOST_CONFIDENCE = 0.5, 0.999
"""Estimates give their quantiles between these two."""
PolicyName = Literal["exclusive", "round_robin", "magm", "lug", "mug"]
ServerScope = Literal["user", "account", "gpu"]
"""Which jobs on a GPU share one MPS server."""


@frozen
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


@frozen
class JobComment:
    """A job's comment, by its parts (core/comments/signed_comment.py).

    Attributes:
        words: The user's own text.
        profile: The model profile that the login node put there; None without one.
        signed: The signed booking, not verified yet; "" without one.
    """

    words: str = ""
    profile: str | None = None
    signed: str = ""


@frozen
class JobRequest:
    """Request of a user, as the job_submit hook receives it.

    Attributes:
        user_id: The submitting user.
        partition: Partition name; None if the user left it to Slurm's default.
        gres: Per-node GRES (`--gres`, `--gpus-per-node`).
        gres_per_job: Per-job GRES (`--gpus`).
        gres_per_task: Per-task GRES (`--gpus-per-task`).
        gres_per_socket: Per-socket GRES (`--gpus-per-socket`).
        cpus_per_gpu: `--cpus-per-gpu`, or None.
        memory_per_gpu_mib: `--mem-per-gpu` (host memory), or None.
        states_memory: Whether it says how much host memory it needs, by node or by CPU.
        nodes: Most nodes that its options imply, as far as they do; None if they do not.
        tasks: Number of tasks; None if not stated.
        cpus_per_task: `--cpus-per-task`, or None.
        cpus_per_node: `--mincpus`, or None.
        comment: Its comment.
        script: Leading part of the batch script; None for salloc and srun.
        heterogeneous: One component of a heterogeneous job.
        recurs: A scrontab entry: Slurm runs it repeatedly under the same id, counting a restart each time.
        interactive: From srun or salloc: its request was fixed on the login node, and must not change any more.
        whole_nodes: It gets whole nodes (`--exclusive`, `OverSubscribe=EXCLUSIVE`), where Slurm starts no shards.
        before_shards: It arrives while Slurm has no shards configured yet and would refuse a request for them.
        other_gres: What `--gres` requests apart from GPUs and shards ("nvme:100"); it is kept.
        other_per_task: What is requested per task apart from GPUs, as Slurm wrote it ("cpu=4"); it is kept.
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
    states_memory: bool = False
    nodes: int | None = None
    tasks: int | None = None
    cpus_per_task: int | None = None
    cpus_per_node: int | None = None
    comment: JobComment = JobComment()
    script: str | None = None
    heterogeneous: bool = False
    recurs: bool = False
    interactive: bool = False
    whole_nodes: bool = False
    before_shards: bool = False
    other_gres: str = ""
    other_per_task: str = ""
    binds_gpus: bool = False
    gpu_only_option: str | None = None

    @property
    def requested(self) -> tuple[GresItem, ...]:
        """Return the GRES that it requests, in all spellings."""
        return (*self.gres, *self.gres_per_job, *self.gres_per_task, *self.gres_per_socket)


@frozen
class UserDirectives:
    """User directives in `#RAD` lines or in the comment; a hint, never the truth.

    Attributes:
        profile: Compact model profile (gpumemnet's text form), or None.
        memory_bytes: `memory=12G`: the stated need, or None.
        policy: `policy=exclusive|collocate`, or None.
        retry: False if `retry=no`: no rerun, whatever ended it.
        gpus: `gpus=2`: processes of a data-parallel job, or None.
        confidence: `confidence=0.9|bound`: how safe the booking must be, or None.
        own_server: `mps_server=own`: it shares its MPS server with no other job.
    """

    profile: str | None = None
    memory_bytes: int | None = None
    policy: Literal["exclusive", "collocate"] | None = None
    retry: bool = True
    gpus: int | None = None
    confidence: Confidence | None = None
    own_server: bool = False


@frozen
class MemoryEstimate:
    """GPU memory of one process of a job at its peak, as nvidia-smi would show it.

    Attributes:
        estimate_bytes: The estimate.
        upper_bytes: The bound.
        confidence: Share of jobs that stay under the bound; None if it was not measured.
        quantiles: Points (share of jobs, bytes that this share stays under) between estimate and bound, both rising; ()
            if none are known.
        smact: Expected share of SMs kept busy when it is alone on a GPU (0 to 1); None if unknown.
        smact_seen: Whether that was measured in earlier runs, with their waits for data; else it never waits.
        busy: Expected share of that time in which any of its kernels runs (0 to 1); None if unknown.
        source: Its origin: an estimator's name, "history", "stated".
        profile_key: Short hash of model and training setup; None if the need was stated by the user.
        kind: Group of estimates with similar errors: what it was made from; "" where nothing is learned about it.
        learned: One sentence on how this site's own runs changed it; "" if they did not.
    """

    estimate_bytes: int
    upper_bytes: int
    confidence: float | None
    source: str
    quantiles: tuple[tuple[float, int], ...] = ()
    smact: float | None = None
    smact_seen: bool = False
    busy: float | None = None
    profile_key: str | None = None
    kind: str = ""
    learned: str = ""


@frozen
class RequestedTasks:
    """Tasks that a user requested: the job's steps get them although the request to Slurm names others.

    Attributes:
        tasks: Their number.
        cpus: CPUs of each; 0 if not stated.
        own_gpu: Each task sees one dedicated GPU (`--gpus-per-task=1`).
    """

    tasks: int = 1
    cpus: int = 0
    own_gpu: bool = False


@frozen
class Booking:
    """What a job may use, from submission to its end; signed in the job's comment (comments/signed_comment.py).

    A job has three memory sizes for each GPU: the estimate, the booking, and the limit.

    Attributes:
        kind: "shared": part of one GPU, or of each of several. "whole": exclusive GPUs.
        gpus: GPUs on each node.
        processes: Number that share each of its GPUs, as far as the request shows.
        memory_bytes: Booked memory per GPU, which is guaranteed; None for a whole GPU.
        cap_bytes: Its limit per GPU, as long as others leave that memory free; None if that is the booking.
        estimate_bytes: The estimate behind both; None if there was none.
        smact: Expected share of SMs kept busy (0 to 1); None if unknown.
        recoveries: How often the job was requeued after running out of memory.
        retry: Whether it may be recovered again.
        profile_key: Hash under which the observed peak is stored; None if there is no profile.
        basis: Origin of the size: "estimate" (RAD's), "history" (earlier runs of the same user and model), or
            "requested": the user stated it or gave RAD nothing to estimate from.
        shards: Shards that it requests from Slurm on each node, for all its GPUs together; 0 if it requests GPUs.
        by_task: Tasks as the user requested them, where the request to Slurm has one task for each GPU; None where it
            has the user's.
        partitions: Marks of the partitions that it may start in (booking/verification.py).
        own_server: Whether it shares its MPS server with no other job.
        changed: Whether only Slurm knows what it allocates: the request was changed since, or uses several spellings.
        by_node: Whether the user requested by node what its shards stand for; a change by node does not concern a GPU
            requested by job or task.
    """

    kind: BookingKind
    gpus: int = 1
    processes: int = 1
    memory_bytes: int | None = None
    cap_bytes: int | None = None
    estimate_bytes: int | None = None
    smact: float | None = None
    recoveries: int = 0
    retry: bool = True
    profile_key: str | None = None
    basis: BookingBasis = "requested"
    shards: int = 0
    by_task: RequestedTasks | None = None
    partitions: tuple[str, ...] = ()
    own_server: bool = False
    changed: bool = False
    by_node: bool = True


@frozen
class Rewrite:
    """What to change in a submission.

    Attributes:
        fields: job_desc fields to set, by their Lua name; "" clears one. Empty means: the job passes through unchanged.
        environment: Variables to set in a batch job's environment; "" blanks one.
        messages: Lines for the user.
        refusal: Why the job is refused, with the number that would fit; None if it is not.
        booking: What the rewritten job books; None if the job passes through unchanged.
        reason: A word or two for log and metrics: "shared", "exclusive", "multi-gpu", "no gpu", "observe", ...
        each_gpu: The shards of each GPU, where the fields request them by task; "" where they do not.
        share: Share of jobs for which the booking is large enough; None if unknown, or for whole GPUs.
    """

    fields: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    messages: tuple[str, ...] = ()
    refusal: str | None = None
    booking: Booking | None = None
    reason: str = ""
    each_gpu: str = ""
    share: float | None = None
