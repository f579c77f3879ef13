"""A job in a partition with `mig = "map"`: the smallest MIG instance that holds it."""

from __future__ import annotations

from slurm_plugin.core import words
from slurm_plugin.core.bookings import processes_of, spoken
from slurm_plugin.core.config import PartitionConfig
from slurm_plugin.core.mig import parse_profiles, smallest_profile
from slurm_plugin.core.records import (
    Claims,
    GresItem,
    JobRequest,
    MemoryEstimate,
    Rewrite,
)
from slurm_plugin.core.shards import cleared_environment, gpu_obstacle, shard_fields


def mig_instance(
    request: JobRequest, claims: Claims, estimate: MemoryEstimate | None, partition: PartitionConfig
) -> Rewrite:
    """Give a job the smallest MIG instance that holds it; whatever else it asks for is its own affair.

    Args:
        request: What the user asked for.
        claims: What the user says about the job.
        estimate: The need of one process; None if it is unknown.
        partition: Settings of its partition.
    """
    plain = request.gres == (GresItem(name="gpu"),) or request.gres_per_job == (GresItem(name="gpu"),)
    asked = request.asked
    single = len(asked) == 1 and (request.nodes or 1) == 1 and not request.heterogeneous
    if estimate is None or not plain or not single or request.interactive:
        return Rewrite(reason="mig")
    if gpu_obstacle(request, partition) is not None:
        return Rewrite(reason="mig")
    profiles = parse_profiles(partition.mig_profiles)
    need_bytes = processes_of(request, claims) * estimate.upper_bytes
    profile = smallest_profile(need_bytes, profiles)
    if profile is None:
        return Rewrite(
            messages=(words.no_instance(need_bytes, profiles[-1].usable_bytes),),
            reason="mig: too large",
        )
    return Rewrite(
        fields=shard_fields(request, f"gpu:{profile.name}:1"),
        environment=cleared_environment(request),
        messages=(words.instance(profile.name, estimate),) if spoken(claims) else (),
        reason="mig: mapped",
    )
