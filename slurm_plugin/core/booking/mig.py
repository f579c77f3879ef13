"""Jobs in a partition with `mig = "map"`: choose the smallest MIG instance that is large enough."""

from __future__ import annotations

from slurm_plugin.core.booking import messages
from slurm_plugin.core.booking.bookings import if_stated, processes_of
from slurm_plugin.core.booking.gres_request import cleared_environment, gpu_obstacle, shard_fields
from slurm_plugin.core.booking.gres_text import is_mig
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.config.mig_profiles import parse_profiles, smallest_profile
from slurm_plugin.core.records.submission import (
    GresItem,
    JobRequest,
    MemoryEstimate,
    Rewrite,
    UserDirectives,
)


def mig_instance(
    request: JobRequest, stated: UserDirectives, estimate: MemoryEstimate | None, partition: PartitionConfig
) -> Rewrite:
    """Give a job the smallest MIG instance that is large enough; the rest of its request is unchanged.

    Args:
        request: The user's request.
        stated: The user's directives.
        estimate: The need of one process; None if it is unknown.
        partition: Settings of its partition.
    """
    plain = request.gres == (GresItem(name="gpu"),) or request.gres_per_job == (GresItem(name="gpu"),)
    requested = request.requested
    single = len(requested) == 1 and (request.nodes or 1) == 1 and not request.heterogeneous
    if any(is_mig(item) for item in requested):
        return Rewrite(messages=if_stated(stated, messages.MIG), reason="mig")
    if estimate is None or not plain or not single or request.interactive:
        return Rewrite(reason="mig")
    if gpu_obstacle(request, partition) is not None:
        return Rewrite(reason="mig")
    profiles = parse_profiles(partition.mig_profiles)
    need_bytes = processes_of(request, stated) * estimate.upper_bytes
    profile = smallest_profile(need_bytes, profiles)
    if profile is None:
        return Rewrite(
            messages=(messages.no_instance(need_bytes, profiles[-1].usable_bytes),),
            reason="mig: too large",
        )
    return Rewrite(
        fields=shard_fields(request, f"gpu:{profile.name}:1"),
        environment=cleared_environment(request),
        messages=if_stated(stated, messages.instance(profile.name, estimate)),
        reason="mig: mapped",
    )
