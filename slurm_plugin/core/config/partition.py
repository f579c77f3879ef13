"""Settings of one partition in rad.toml: fields, defaults and meanings; settings.py has the rest."""

from __future__ import annotations

from typing import Literal

from gpumemnet.records import field, frozen, replace
from slurm_plugin.core.config.gpu_types import GpuSize, GpuType
from slurm_plugin.core.records.submission import Confidence, PolicyName, ServerScope
from slurm_plugin.core.units import from_mib, parse_span

OVERCOMMIT = 2.0
"""Expected SM activity that a GPU gets by default: the most at which makespan hardly grows
(docs/measurements/2026-11-sharing-simulated.md)."""


@frozen
class PartitionConfig:
    """How jobs of one partition are treated.

    Attributes:
        collocate: Whether single-GPU jobs of this partition may share GPUs. If False, all jobs pass through unchanged.
        default: What a GPU job without usable #RAD lines gets: an exclusive GPU, its request unchanged, or collocation
            with its need unknown.
        gpu_memory_mib: Usable memory of one GPU of the partition; 0 takes it from shards_per_gpu.
        shards_per_gpu: Shards of one GPU as in gres.conf; 0 derives them from gpu_memory_mib.
        gpus: The same and the base memory for each type, as `scontrol show node` names it (`Gres=gpu:a100:4`), where a
            partition has GPUs of several types. Types without a table have the partition's numbers.
        shard_mib: Memory of one shard.
        gpu_type: Type of the partition's GPUs as in gres.conf, if all have the same. A request for it (`gpu:a100:1`)
            can then be turned into shards, as can one for a type in `gpus`; any other typed request keeps its GPU.
        exclusive_form: How an exclusive GPU is requested: "shards" takes all shards of a GPU, "gpu" takes gpu:1
            (Slurm 23.11.5 and later), "auto" chooses by the running version.
        confidence: Share of jobs for which the booking must be large enough: a number, or "bound" for the estimator's
            bound (0.99). Above its booking, up to the bound, a job may still use memory that no other job needs.
        compute_overcommit: Slurm gives a GPU jobs of at most this much expected SM activity in total: a job requests
            the larger of the shards of its memory and this part of a GPU's shards; its memory limit does not change.
            2.0 lets two jobs share that would each fill the GPU. Jobs of several GPUs, and all jobs under
            `sharing = "streams"`, are time-sliced: for them the run time of their kernels counts (config/compute.py).
            0 counts memory only.
        share_multi_gpu: Whether a job of several GPUs of one node shares them, too, if the need of each of its
            processes is known: it gets shards of that many GPUs. Needs Slurm 23.11 and
            `SelectTypeParameters=...,MULTIPLE_SHARING_GRES_PJ`; without them, and by default, such jobs get their GPUs
            exclusively.
        policy: Placement policy (thesis section 6.2.2).
        pin: "slurm" keeps jobs on the GPU that Slurm allocated. "bound" lets the policy choose if no job uses the
            allocated GPU yet. "auto" is "slurm" where cgroups confine devices, or where the node also serves a
            partition that is not collocated: its jobs run on exactly the GPU that Slurm names, so no managed job may
            have been moved there. Elsewhere it is "bound".
        one_user_per_gpu: Whether only jobs of one user share a GPU. Partitions with common GPUs should agree.
        smact_max: A GPU at or above this SM activity is avoided; if all are, `on_saturated` decides.
        free_min_mib: Free memory required by a job of unknown need.
        margin_mib: Added to the need on a GPU where memory is used that no job booked.
        on_saturated: What to do when every GPU is at or above `smact_max`: place the job anyway, or let it wait in the
            queue.
        saturated_waits: How often a job waits for that at most, before it is placed anyway. The waits last 10, 20, 40,
            80 and then 160 s each, so 5 are some five minutes.
        sharing: How processes share a GPU: MPS, or time-sliced streams.
        mps_server: Which jobs on a GPU share one MPS server: those of one user, of one Slurm account, or all on the
            GPU. Servers of one GPU take turns, the jobs of one server run at once; an illegal address ends all jobs of
            its server. Accounts count only where Slurm enforces them (AccountingStorageEnforce=associations).
        visible_devices: How CUDA_VISIBLE_DEVICES names a job's GPUs: "index" by numbers, as Slurm does, which every
            launcher reads (of a job under MPS 0, its daemon's one GPU); "uuid" by UUIDs, which name the right GPU also
            in a container that does not see the MPS pipe. Where cgroups confine devices, Slurm's own numbers stay.
        memory_cap: Whether MPS enforces a shared job's limit: its booking, or more while no other job needs the memory.
        on_overrun: What rad-monitor does to a job that bypassed its limit, or uses a GPU allocated to another job:
            report it; stop it and rerun it with a whole GPU, as after running out of memory; or end it. A job between
            its booking and its limit is only rerun, and only if another job lacks memory that it booked.
        on_outside_mps: The same for a job that was given an MPS server and bypasses it. A container that does not see
            the pipe directory does so without intent.
        idle_after: A job that has used GPU memory for so long and computed nothing is named idle: "30m", "2h"; "" names
            none.
        idle_action: What rad-monitor does to an idle job, apart from naming it: nothing; write it into the job's
            AdminComment; stop it and run it again as it was; or end it.
        mig: "pass" keeps MIG requests unchanged; "map" turns a request for one GPU, of no type, into the smallest of
            mig_profiles that is large enough for the estimate. The partition's GPUs are then all partitioned, and not
            shared.
        mig_profiles: The types of MIG instances in gres.conf, e.g. "1g.10gb 3g.40gb".
        time_limit_factor: A job that shared its GPU with another user's job may run longer than its --time: by as long
            as it shared, up to this many times its --time, never past the partition's MaxTime or into a reservation of
            its node. 1 gives no extension.
        keep_queue_position: Whether a job that its Prolog requeued gets its former queue position, by a priority boost
            until it starts: Slurm treats it as just submitted.
        recovery: After running out of memory: "exclusive" takes a whole GPU at once; "escalate" first tries the
            observed peak plus the failed allocation plus 5 GiB (thesis section 7.2); "off" leaves the job failed.
        max_recoveries: Maximum reruns of one job.
        recovery_boost: By how much the priority of a rerun rises from its requeue until it starts, if its failure was
            caused by RAD's estimate or another job; 0 gives no boost. With priority/multifactor use PriorityWeightAge:
            the gain of the longest wait.
        recovery_priority: Maximum priority of a rerun after a boost. The default is where priority/basic begins to
            count down (slurm.h, TOP_PRIORITY); higher priorities set by an admin stay first.
        boosts_per_day: Reruns of one user in 24 hours that get a priority boost.
    """

    collocate: bool = False
    default: Literal["exclusive", "leave", "collocate"] = "exclusive"
    gpu_memory_mib: int = 0
    shards_per_gpu: int = 0
    shard_mib: int = 1024
    gpu_type: str = ""
    gpus: dict[str, GpuType] = field(default_factory=dict)
    exclusive_form: Literal["auto", "shards", "gpu"] = "auto"
    confidence: Confidence = 0.95
    compute_overcommit: float = OVERCOMMIT
    share_multi_gpu: bool = False
    policy: PolicyName = "magm"
    pin: Literal["auto", "slurm", "bound"] = "auto"
    one_user_per_gpu: bool = False
    smact_max: float = 0.80
    free_min_mib: int = 5120
    margin_mib: int = 512
    on_saturated: Literal["place", "wait"] = "place"
    saturated_waits: int = 5
    sharing: Literal["mps", "streams"] = "mps"
    mps_server: ServerScope = "user"
    visible_devices: Literal["index", "uuid"] = "index"
    memory_cap: bool = True
    on_overrun: Literal["warn", "requeue", "end"] = "requeue"
    on_outside_mps: Literal["warn", "requeue", "end"] = "warn"
    idle_after: str = "30m"
    idle_action: Literal["none", "warn", "requeue", "end"] = "none"
    mig: Literal["pass", "map"] = "pass"
    mig_profiles: str = ""
    time_limit_factor: float = 2.0
    keep_queue_position: bool = True
    recovery: Literal["exclusive", "escalate", "off"] = "exclusive"
    max_recoveries: int = 2
    recovery_boost: int = 1000
    recovery_priority: int = 4_294_901_760
    boosts_per_day: int = 5

    @property
    def managed(self) -> bool:
        """Return whether submissions to this partition are changed at all."""
        return self.collocate or self.mig == "map"

    @property
    def idle_after_s(self) -> float:
        """Return `idle_after` in seconds; infinite for never."""
        return parse_span(self.idle_after) if self.idle_after else float("inf")

    @property
    def shard_bytes(self) -> int:
        """Return the memory of one shard."""
        return from_mib(self.shard_mib)

    @property
    def sizes(self) -> tuple[GpuSize, ...]:
        """Return the sizes of the partition's GPUs, the smallest first; none if unknown."""
        others = GpuType(gpu_memory_mib=self.gpu_memory_mib, shards_per_gpu=self.shards_per_gpu)
        found = []
        for name, gpu in {"": others, **self.gpus}.items():
            shards = gpu.shards_per_gpu or gpu.gpu_memory_mib // self.shard_mib
            capacity_bytes = from_mib(gpu.gpu_memory_mib) or shards * self.shard_bytes
            if shards:
                found.append(GpuSize(type=name, shards=shards, capacity_bytes=capacity_bytes))
        return tuple(sorted(found, key=lambda size: (size.shards, size.capacity_bytes)))

    @property
    def shards(self) -> int:
        """Return the shards of one whole GPU, the largest if they differ."""
        return max((size.shards for size in self.sizes), default=0)

    @property
    def capacity_bytes(self) -> int:
        """Return the memory of one GPU that jobs can use, the largest if they differ."""
        return max((size.capacity_bytes for size in self.sizes), default=0)

    def of_type(self, name: str | None) -> PartitionConfig:
        """Return the settings for GPUs of one type only; unchanged if it has no separate table."""
        gpu = self.gpus.get(name or "")
        if gpu is None:
            return self
        memory_mib, shards = gpu.gpu_memory_mib, gpu.shards_per_gpu
        return replace(self, gpus={}, gpu_type=name or "", gpu_memory_mib=memory_mib, shards_per_gpu=shards)
