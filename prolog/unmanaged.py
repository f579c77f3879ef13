"""Record jobs of unmanaged partitions in the ledger so that managed jobs avoid their GPUs."""

from __future__ import annotations

from slurm_plugin.core.booking.gres_text import count_of, is_mig, parse_gres
from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.records.submission import GresItem
from slurm_plugin.node.facts import NodeFacts, facts_of
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.hook_env import HookJob

LOCK_S = 1.0
"""The job waits for RAD meanwhile, without any benefit."""


def note(node: Node, job: HookJob) -> Allocation | None:
    """Record what Slurm gave a job, on a node that managed jobs may use; return the record.

    Args:
        node: This node.
        job: The job, as slurmd passes it to its hooks.

    Raises:
        RadError: It cannot be recorded.
    """
    facts = facts_of(node, job.node)
    if not any(map(node.manages, facts.partitions)):
        return None
    if not facts.gpus:
        from prolog.readings import read_gpus

        facts = facts_of(node, job.node, read_gpus(node.config, node.clock))
    try:
        view = node.slurm().job(job.job_id)
    except SlurmError:
        view = None
    given = as_given(job, facts, parse_gres(view.gres) if view else (), now_s=node.clock.monotonic_s())
    if given is not None:
        with node.store.locked(Deadline(node.clock, LOCK_S)):
            found = node.store.read()
            if not found.lost:  # a rebuild finds this job among the live ones
                node.store.write(found.ledger.note(given))
    return given


def as_given(
    job: HookJob, facts: NodeFacts, items: tuple[GresItem, ...], *, now_s: float
) -> Allocation | None:
    """Return what Slurm gave a job: shards by the size of one on this node, anything else as whole GPUs.

    Args:
        job: The job.
        facts: The node.
        items: What it requested; empty if Slurm did not say.
        now_s: Seconds since boot.
    """
    node_gpus = tuple(node_gpu for node_gpu in facts.gpus if node_gpu.index in job.gpu_indices)
    if not node_gpus or any(map(is_mig, items)):
        return None
    shards = 0 if count_of(items, "gpu") else count_of(items, "shard")
    usable_bytes = min(node_gpu.usable_bytes for node_gpu in node_gpus)
    shared = shards > 0 and facts.shard_bytes > 0
    return Allocation(
        job_id=job.job_id,
        user_id=job.user_id,
        kind="shared" if shared else "whole",
        gpus=tuple(node_gpu.uuid for node_gpu in node_gpus),
        gpu_indices=job.gpu_indices,
        booked_bytes=min(usable_bytes, shards * facts.shard_bytes) if shared else usable_bytes,
        created_s=now_s,
        restart=job.restart,
        partition=job.partition,
        managed=False,
    )
