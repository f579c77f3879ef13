"""Jobs that hold memory of a GPU and compute nothing: unused notebooks, sleeping sessions, hung programs."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_plugin.core.config.load import Config
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.monitor.window import JobUsage


def idle_jobs(ledger: Ledger, usages: Mapping[int, JobUsage], config: Config) -> dict[int, float]:
    """Return how long each idle job has computed nothing, in seconds, by job id.

    Args:
        ledger: The allocations.
        usages: Usage of each job.
        config: rad.toml: `idle_after` of the job's partition, else the default.
    """
    found = {}
    for allocation in ledger.allocations:
        settings = config.partitions.get(allocation.partition, config.partition_defaults)
        usage = usages.get(allocation.job_id)
        if usage is not None and usage.idle_s >= settings.idle_after_s:
            found[allocation.job_id] = usage.idle_s
    return found
