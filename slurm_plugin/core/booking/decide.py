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

from dataclasses import replace

from slurm_plugin.core.booking import messages as words
from slurm_plugin.core.booking.available_gres import Offer
from slurm_plugin.core.booking.bookings import gpus_of, processes_of, shared, spoken, whole
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
    Claims,
    JobRequest,
    MemoryEstimate,
    Rewrite,
)


def decide(
    request: JobRequest,
    claims: Claims,
    estimate: MemoryEstimate | None,
    *,
    config: Config,
    whole_as_gpu: bool = False,
    spread: int = 0,
) -> Rewrite:
    """Decide what a submission becomes.

    Args:
        request: The user's request.
        claims: The user's directives.
        estimate: The need of one process; None if it is unknown.
        config: rad.toml.
        whole_as_gpu: Request a whole GPU as `gpu:1` and not as all shards of a GPU.
        spread: Maximum number of GPUs of one node for the shards of one job; 0 where Slurm keeps them on one GPU.

    Returns:
        The changes; no fields and no booking if the job passes through unchanged.
    """
    if config.mode == "off" or not config.features.submit:
        return Rewrite(reason="off")
    if request.recurs:
        claims = replace(claims, retry=False)
    partition = config.partition(request.partition)
    if partition is None or not partition.ours:
        return Rewrite(reason="not our partition")
    if partition.mig == "map":
        rewrite = mig_instance(request, claims, estimate, partition)
    else:
        settings = partition if config.features.recovery else replace(partition, recovery="off")
        guarded = config.features.guard
        offer = Offer.of(settings, request.asked, whole_as_gpu=whole_as_gpu, spread=spread, guarded=guarded)
        rewrite = _decide(request, claims, estimate, offer)
        rewrite = bound(rewrite, request, config.default_partition)
    if config.mode == "observe":
        asks = rewrite.each_gpu or rewrite.fields.get("gres")
        return Rewrite(reason=f"observe: {rewrite.refusal or asks or rewrite.reason}")
    return rewrite


def _decide(
    request: JobRequest,
    claims: Claims,
    estimate: MemoryEstimate | None,
    offer: Offer,
) -> Rewrite:
    asked = request.asked
    gpus, shards = gpus_of(request), count_of(asked, "shard")
    if request.heterogeneous:
        said = spoken(claims) and (gpus or shards)
        return Rewrite(
            messages=(words.keeps_gpus(words.HETEROGENEOUS),) if said else (), reason="heterogeneous"
        )
    if any(is_mig(item) for item in asked):
        return Rewrite(reason="mig")
    if not gpus and not shards:
        messages = (words.NO_GPU,) if spoken(claims) else ()
        return Rewrite(messages=messages, reason="no gpu")
    if gpus and shards:
        return Rewrite(reason="gpu and shards")  # Slurm refuses the pair with a message of its own
    if (request.nodes or 1) > 1:
        messages = (words.keeps_gpus(words.SEVERAL_NODES),) if spoken(claims) else ()
        return Rewrite(messages=messages, reason="multi-node")
    if shards:
        return own_shards(shards, request, claims, estimate, offer)
    if gpus > 1:
        return several(gpus, request, claims, estimate, offer)
    return _single(request, claims, estimate, offer)


def _single(
    request: JobRequest,
    claims: Claims,
    estimate: MemoryEstimate | None,
    offer: Offer,
) -> Rewrite:
    partition, capacity_bytes = offer.partition, offer.partition.capacity_bytes
    # An estimate may be wrong, and a refusal costs more than a wait.
    knows_better = claims.policy == "exclusive"
    if estimate is not None and estimate.estimate_bytes > capacity_bytes and not knows_better:
        return Rewrite(reason="too large", refusal=words.too_large(estimate, capacity_bytes))
    unknown = estimate is None and claims.policy != "collocate"
    if unknown and claims.policy is None and partition.default == "leave":
        return Rewrite(reason="default")
    if request.interactive:
        return Rewrite(booking=whole(1, request, claims, estimate), reason="interactive")
    obstacle = gpu_obstacle(request, partition)
    if obstacle is not None:
        messages = (words.keeps_gpu(obstacle),) if spoken(claims) else ()
        return Rewrite(messages=messages, booking=whole(1, request, claims, estimate), reason="kept")
    if claims.policy == "exclusive" or (unknown and partition.default == "exclusive"):
        why = words.EXCLUSIVE if claims.policy == "exclusive" else words.NEED_UNKNOWN
        return _exclusively(request, claims, estimate, offer, why)
    part = part_for(claims, estimate, partition, processes=processes_of(request, claims))
    if not part.fits:
        why = words.may_need(part.need_bytes, capacity_bytes)
        return _exclusively(request, claims, estimate, offer, why, part.need_bytes)
    rewrite = Rewrite(
        messages=(part.message,) if spoken(claims) else (),
        booking=part.of(shared(part.booked_bytes, request, claims, estimate)),
        reason="shared",
    )
    return with_shards(rewrite, request, offer, offer.share(part.asked))


def _exclusively(
    request: JobRequest,
    claims: Claims,
    estimate: MemoryEstimate | None,
    offer: Offer,
    why: str,
    need_bytes: int | None = None,
) -> Rewrite:
    rewrite = Rewrite(
        messages=(words.alone(why),) if spoken(claims) else (),
        booking=whole(1, request, claims, estimate),
        reason="exclusive",
    )
    if need_bytes is None and estimate is not None:
        need_bytes = processes_of(request, claims) * estimate.estimate_bytes
    gres = offer.whole(need_bytes)
    if offer.whole_as_gpu and gres == offer.whole(None):
        return rewrite  # any GPU will do, and one is already requested
    return with_shards(rewrite, request, offer, gres)
