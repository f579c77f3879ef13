"""Decide what to do with a submission: a pure function of the request, the user directives and the estimate.

| the job requests | it gets |
|---|---|
| no GPU; MIG; several nodes; a heterogeneous component; an unmanaged partition | its request unchanged |
| shards | its request unchanged; booked: those shards, or the GPU if they are all of one |
| shards of whole nodes (`--exclusive`) | refused: Slurm would never start it |
| several GPUs on one node | its request unchanged; booked: whole GPUs |
| the same with `share_multi_gpu`, the need of each process known | shards of as many GPUs, requested by task |
| one GPU, by an option or type that shards cannot replace | its request unchanged; booked: a whole GPU |
| one GPU of whole nodes, or in scrontab | its request unchanged; booked: a whole GPU |
| one GPU, by an srun or salloc that was not rewritten on the login node | its request unchanged; booked: a whole GPU |
| one GPU, need above one GPU, no `policy=exclusive` | refused, with the number that would fit |
| one GPU, `policy=exclusive`, or need unknown where that means exclusive | all shards of a GPU (or gpu:1) |
| one GPU, need known | shards for the need at the chosen confidence; the limit is the bound (`confidence.py`) |
| the same with `compute_overcommit`                   | the larger of these shards and those of its expected compute |
| one GPU, need unknown, collocated by policy | shards for `free_min_mib` |
| one GPU of no type, need known, in a partition with `mig = "map"` | the smallest MIG profile that is large enough |
"""

from __future__ import annotations

from gpumemnet.records import replace
from slurm_plugin.core.booking import messages as texts
from slurm_plugin.core.booking.available_gres import AvailableGres
from slurm_plugin.core.booking.bookings import gpus_of, if_stated, processes_of, shared, whole
from slurm_plugin.core.booking.gres_request import gpu_obstacle
from slurm_plugin.core.booking.gres_text import count_of, is_mig
from slurm_plugin.core.booking.mig import mig_instance
from slurm_plugin.core.booking.multi_gpu import several
from slurm_plugin.core.booking.shard_layout import with_shards
from slurm_plugin.core.booking.size import part_for
from slurm_plugin.core.booking.user_shards import own_shards
from slurm_plugin.core.booking.verification import bound
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.records.submission import (
    JobRequest,
    MemoryEstimate,
    Rewrite,
    UserDirectives,
)

NOT_MANAGED = "not our partition"
"""Reason for leaving a job of an unmanaged partition unchanged."""


def decide(
    request: JobRequest,
    stated: UserDirectives,
    estimate: MemoryEstimate | None,
    *,
    config: Config,
    whole_as_gpu: bool = False,
    max_shard_gpus: int = 0,
) -> Rewrite:
    """Decide what a submission becomes.

    Args:
        request: The user's request.
        stated: The user's directives.
        estimate: The need of one process; None if it is unknown.
        config: rad.toml.
        whole_as_gpu: Request a whole GPU as `gpu:1` and not as all shards of a GPU.
        max_shard_gpus: On how many GPUs of a node the shards of one job may be; 0 where Slurm keeps them on one.

    Returns:
        The changes; no fields and no booking if the job passes through unchanged.
    """
    if config.mode == "off" or not config.features.submit:
        return Rewrite(reason="off")
    if request.recurs:
        stated = replace(stated, retry=False)
    partition = config.partition(request.partition)
    if partition is None or not partition.managed:
        return Rewrite(reason=NOT_MANAGED)
    if partition.mig == "map":
        rewrite = mig_instance(request, stated, estimate, partition)
    else:
        settings = partition if config.features.recovery else replace(partition, recovery="off")
        guarded = config.features.guard
        available = AvailableGres.of(
            settings,
            request.requested,
            whole_as_gpu=whole_as_gpu,
            max_shard_gpus=max_shard_gpus,
            guarded=guarded,
        )
        rewrite = _decide(request, stated, estimate, available)
        rewrite = bound(rewrite, request, config.default_partition)
    if config.mode == "observe":
        return Rewrite(reason=f"observe: {_observed(rewrite, request)}")
    return rewrite


def _observed(rewrite: Rewrite, request: JobRequest) -> str:
    """Return what would have been done, with its kind as the first word: `admin/observe_mode.py` counts these."""
    asks = rewrite.each_gpu or rewrite.fields.get("gres") or rewrite.reason
    if rewrite.refusal:
        return f"refused {rewrite.refusal}"
    if rewrite.booking:
        return f"{rewrite.booking.kind} {asks}"
    return asks if rewrite.fields or not gpus_of(request) else f"unchanged {asks}"


def _decide(
    request: JobRequest,
    stated: UserDirectives,
    estimate: MemoryEstimate | None,
    available: AvailableGres,
) -> Rewrite:
    requested = request.requested
    gpus, shards = gpus_of(request), count_of(requested, "shard")
    if request.heterogeneous:
        return Rewrite(messages=if_stated(stated, texts.HETEROGENEOUS), reason="heterogeneous")
    if any(is_mig(item) for item in requested):
        return Rewrite(messages=if_stated(stated, texts.MIG), reason="mig")
    if not gpus and not shards:
        return Rewrite(messages=if_stated(stated, texts.NO_GPU), reason="no gpu")
    if gpus and shards:
        return Rewrite(reason="gpu and shards")  # Slurm refuses the pair with a message of its own
    if (request.nodes or 1) > 1:
        messages = if_stated(stated, texts.keeps_gpus(texts.SEVERAL_NODES))
        return Rewrite(messages=messages, reason="multi-node")
    if shards:
        return own_shards(shards, request, stated, estimate, available)
    if gpus > 1:
        return several(gpus, request, stated, estimate, available)
    return _single(request, stated, estimate, available)


def _single(
    request: JobRequest,
    stated: UserDirectives,
    estimate: MemoryEstimate | None,
    available: AvailableGres,
) -> Rewrite:
    partition, capacity_bytes = available.partition, available.partition.capacity_bytes
    # An estimate may be wrong, and a refusal costs more than a wait.
    knows_better = stated.policy == "exclusive"
    if estimate is not None and estimate.estimate_bytes > capacity_bytes and not knows_better:
        return Rewrite(reason="too large", refusal=texts.too_large(estimate, capacity_bytes))
    unknown = estimate is None and stated.policy != "collocate"
    if unknown and stated.policy is None and partition.default == "leave":
        return Rewrite(reason="default")
    if request.interactive:
        return Rewrite(booking=whole(1, request, stated, estimate), reason="interactive")
    obstacle = gpu_obstacle(request, partition)
    if obstacle is not None:
        messages = if_stated(stated, texts.keeps_gpu(obstacle))
        return Rewrite(messages=messages, booking=whole(1, request, stated, estimate), reason="kept")
    if stated.policy == "exclusive" or (unknown and partition.default == "exclusive"):
        why = texts.EXCLUSIVE if stated.policy == "exclusive" else texts.NEED_UNKNOWN
        return _exclusively(request, stated, estimate, available, why)
    processes = processes_of(request, stated)
    part = part_for(stated, estimate, partition, processes=processes)
    if not part.fits:
        why = texts.may_need(part.need_bytes, capacity_bytes, processes)
        return _exclusively(request, stated, estimate, available, why, part.need_bytes)
    rewrite = Rewrite(
        messages=if_stated(stated, part.message),
        booking=part.of(shared(part.booked_bytes, request, stated, estimate)),
        reason="shared",
        share=part.share,
    )
    return with_shards(rewrite, request, available, available.share(part.requested))


def _exclusively(
    request: JobRequest,
    stated: UserDirectives,
    estimate: MemoryEstimate | None,
    available: AvailableGres,
    why: str,
    need_bytes: int | None = None,
) -> Rewrite:
    rewrite = Rewrite(
        messages=if_stated(stated, texts.alone(why)),
        booking=whole(1, request, stated, estimate),
        reason="exclusive",
    )
    if need_bytes is None and estimate is not None:
        need_bytes = processes_of(request, stated) * estimate.estimate_bytes
    gres = available.whole(need_bytes)
    if available.whole_as_gpu and gres == available.whole(None):
        return rewrite  # any GPU will do, and one is already requested
    return with_shards(rewrite, request, available, gres)
