"""Reconcile the ledger: find allocations that are over but were not released, and missing ones.

An Epilog may never run: slurmd was killed, the controller forgot the job, the disk was full. So the ledger is compared
with evidence that only root can create: the slurmstepds of this node, the processes on its GPUs with the jobs that
their cgroups or parents show, the files that the Prolog left, and Slurm's answer. No I/O: node/evidence.py collects,
node/reconcile.py applies.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpumemnet.records import field, frozen, replace
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.records.node import Allocation

YOUNG_S = 20.0
"""A job younger than this may have no slurmstepd yet: a site's other prologs and container images take time."""

LAUNCH_S = 45.0
"""A batch job that Slurm has here for this long and that has no slurmstepd was never launched, or is gone."""


@frozen
class SlurmState:
    """Slurm's answer about a job on this node.

    Attributes:
        restarts: How often it was requeued.
        launched_here: It has a batch script that runs on this node, so that it must have a slurmstepd here.
        starting_here: It has a batch script that is to run on this node, and Slurm waits for its Prolog to end.
        running: It is running or starting for Slurm, not ending.
    """

    restarts: int
    launched_here: bool
    starting_here: bool = False
    running: bool = False


@frozen
class NodeEvidence:
    """Evidence of the jobs that really are on the node.

    Attributes:
        steps: Jobs with a slurmstepd on this node.
        on_gpus: Jobs with a process on a GPU, and the UUIDs of those GPUs.
        placed: Allocations according to the Prolog's files.
        present: Jobs that Slurm has on this node; None if it was not queried or did not answer.
        slurmd_since_s: When this node's slurmd started, in seconds since boot; None if that is not known.
        unconfirmed: Job id and restart count of the runs of which an earlier reconciliation saw nothing, either.
        missed: The same of the runs that Slurm did not list at an earlier reconciliation, either.
    """

    steps: frozenset[int] = frozenset()
    on_gpus: Mapping[int, frozenset[str]] = field(default_factory=dict)
    placed: Mapping[int, Allocation] = field(default_factory=dict)
    present: Mapping[int, SlurmState] | None = None
    slurmd_since_s: float | None = None
    unconfirmed: frozenset[tuple[int, int | None]] = frozenset()
    missed: frozenset[tuple[int, int | None]] = frozenset()

    def shows(self, job_id: int) -> bool:
        """Return whether a job certainly runs on this node."""
        return job_id in self.steps or job_id in self.on_gpus


def reconcile(ledger: Ledger, evidence: NodeEvidence, *, now_s: float) -> Ledger:
    """Return the ledger without allocations that are over and with those that were missing.

    Nothing is released while Slurm does not answer, and nothing that is young, has a step or is on a GPU. Others are
    released once two reconciliations have seen nothing of them: one list of jobs may lack one.

    Args:
        ledger: The recorded allocations.
        evidence: Evidence from this node and Slurm.
        now_s: Seconds since boot.
    """
    kept = tuple(allocation for allocation in ledger.allocations if not _over(allocation, evidence, now_s))
    result = replace(ledger, allocations=kept, reconciled_s=now_s)
    for job_id, allocation in evidence.placed.items():
        if job_id in evidence.steps and result.of_job(job_id) is None:
            result = result.note(allocation)
    return result


def rebuild(evidence: NodeEvidence, unknown: Mapping[int, Allocation], *, now_s: float) -> Ledger:
    """Rebuild a lost ledger from the Prolog's files of jobs that run or may be about to start.

    Args:
        evidence: Evidence from this node and Slurm.
        unknown: Allocations of jobs that run and have no file.
        now_s: Seconds since boot.
    """
    ledger = Ledger(reconciled_s=now_s)
    for allocation in (*evidence.placed.values(), *unknown.values()):
        ledger = ledger.note(allocation)
    return reconcile(ledger, evidence, now_s=now_s)


def doubtful(ledger: Ledger, evidence: NodeEvidence, *, now_s: float) -> tuple[Allocation, ...]:
    """Return the allocations that only Slurm can still confirm: it is queried if there are any.

    Args:
        ledger: The ledger as read.
        evidence: Evidence from this node.
        now_s: Seconds since the node's boot.
    """
    return tuple(
        allocation
        for allocation in ledger.allocations
        if not evidence.shows(allocation.job_id) and now_s - allocation.created_s > YOUNG_S
    )


def never_launched(ledger: Ledger, evidence: NodeEvidence, *, now_s: float) -> tuple[tuple[int, int], ...]:
    """Return id and restart count of the jobs that run here according to Slurm but left no trace on this node.

    slurmd was killed while their Prolog ran, or slurmctld just after it had requeued them. Nothing ends such a run.

    Args:
        ledger: The ledger as read.
        evidence: Evidence from this node and Slurm.
        now_s: Seconds since the node's boot.
    """
    found = []
    for allocation in ledger.allocations:
        slurm = (evidence.present or {}).get(allocation.job_id)
        age_s = now_s - allocation.created_s
        if slurm is None or evidence.shows(allocation.job_id) or not allocation.managed:
            continue
        never_came = _never_came(allocation, slurm, evidence, age_s)
        if slurm.running and never_came and slurm.restarts == allocation.restart:
            found.append((allocation.job_id, allocation.restart))
    return tuple(found)


def missing(ledger: Ledger, evidence: NodeEvidence, *, now_s: float) -> tuple[tuple[int, int], ...]:
    """Return id and restart count of the runs that left no trace here and that Slurm does not list.

    Args:
        ledger: The ledger as read.
        evidence: Evidence from this node and Slurm.
        now_s: Seconds since the node's boot.
    """
    if evidence.present is None:
        return ()
    unconfirmed = doubtful(ledger, evidence, now_s=now_s)
    return tuple(
        (allocation.job_id, allocation.restart)
        for allocation in unconfirmed
        if allocation.job_id not in evidence.present
    )


def _over(allocation: Allocation, evidence: NodeEvidence, now_s: float) -> bool:
    age_s = now_s - allocation.created_s
    if evidence.shows(allocation.job_id) or age_s <= YOUNG_S or evidence.present is None:
        return False
    slurm = evidence.present.get(allocation.job_id)
    if slurm is None:
        return (allocation.job_id, allocation.restart) in evidence.missed
    if slurm.restarts > allocation.restart:
        return True
    return (allocation.job_id, allocation.restart) in evidence.unconfirmed and _never_came(
        allocation, slurm, evidence, age_s
    )


def _never_came(allocation: Allocation, slurm: SlurmState, evidence: NodeEvidence, age_s: float) -> bool:
    """Return whether a run without a slurmstepd will never have one here.

    A Prolog may take any time, but none outlives its slurmd: a slurmd that started after the allocation was recorded
    does not know that run, and slurmctld waits for it without end.
    """
    if slurm.starting_here:
        orphaned = evidence.slurmd_since_s is not None and evidence.slurmd_since_s > allocation.created_s
        return orphaned and age_s > YOUNG_S
    return slurm.launched_here and age_s > LAUNCH_S
