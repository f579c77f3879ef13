"""Which reservations are over although nobody released them, and which are missing.

An Epilog may never run: slurmd was killed, the controller forgot the job, the disk was full. So the ledger is compared
with what root alone can make: the slurmstepds of this node, the processes on its GPUs with the jobs that their
cgroups or parents tell, the files that the Prolog left, and what Slurm says. Pure: node/evidence.py
collects, node/sweep.py applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.records.node import Reservation

YOUNG_S = 20.0
"""A job this young may have no slurmstepd yet: a site's other prologs and container images take their time."""

LAUNCH_S = 45.0
"""A batch job that Slurm has on this node for so long and that has no slurmstepd was never launched, or is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSays:
    """What Slurm knows of a job on this node.

    Attributes:
        restarts: How often it was requeued.
        launched_here: It has a batch script that runs on this very node, so that it must have a slurmstepd here.
        starting_here: It has a batch script that is to run on this very node, and Slurm waits for its Prolog to end.
        running: Slurm takes it for running or starting, not for ending.
    """

    restarts: int
    launched_here: bool
    starting_here: bool = False
    running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is really there.

    Attributes:
        steps: Jobs with a slurmstepd on this node.
        on_gpus: Jobs with a process on a GPU, and the UUIDs of those GPUs.
        placed: What the Prolog's files say that jobs hold.
        present: Jobs that Slurm has on this node; None if it was not asked or did not answer.
        slurmd_since_s: When this node's slurmd started, in seconds since boot; None if that is not known.
        doubted: Job id and restart count of the runs that an earlier sweep, too, saw nothing of.
    """

    steps: frozenset[int] = frozenset()
    on_gpus: Mapping[int, frozenset[str]] = field(default_factory=dict)
    placed: Mapping[int, Reservation] = field(default_factory=dict)
    present: Mapping[int, SlurmSays] | None = None
    slurmd_since_s: float | None = None
    doubted: frozenset[tuple[int, int | None]] = frozenset()

    def shows(self, job_id: int) -> bool:
        """Return whether a job is alive on this node beyond doubt."""
        return job_id in self.steps or job_id in self.on_gpus


def reconcile(ledger: Ledger, evidence: Evidence, *, now_s: float) -> Ledger:
    """Return the ledger without what is over and with what is missing.

    Nothing is released while Slurm does not answer, and nothing that is young, has a step or is on a GPU. A run that
    Slurm believes in is released once two sweeps have seen nothing of it.

    Args:
        ledger: Who holds what, as far as it is written down.
        evidence: What is really there.
        now_s: Seconds since boot.
    """
    kept = tuple(held for held in ledger.reservations if not _over(held, evidence, now_s))
    result = replace(ledger, reservations=kept, swept_s=now_s)
    for job_id, held in evidence.placed.items():
        if job_id in evidence.steps and result.of_job(job_id) is None:
            result = result.note(held)
    return result


def rebuild(evidence: Evidence, unknown: Mapping[int, Reservation], *, now_s: float) -> Ledger:
    """Return a lost ledger: what the Prolog's files say of jobs that live or may be about to start.

    Args:
        evidence: What is really there.
        unknown: What is held by jobs that live and have no file.
        now_s: Seconds since boot.
    """
    ledger = Ledger(swept_s=now_s)
    for held in (*evidence.placed.values(), *unknown.values()):
        ledger = ledger.note(held)
    return reconcile(ledger, evidence, now_s=now_s)


def doubtful(ledger: Ledger, evidence: Evidence, *, now_s: float) -> tuple[Reservation, ...]:
    """Return the reservations that only Slurm can still speak for: it is asked if there are any.

    Args:
        ledger: As read.
        evidence: What is really there.
        now_s: Seconds since the node's boot.
    """
    return tuple(
        held
        for held in ledger.reservations
        if not evidence.shows(held.job_id) and now_s - held.created_s > YOUNG_S
    )


def never_launched(ledger: Ledger, evidence: Evidence, *, now_s: float) -> tuple[tuple[int, int], ...]:
    """Return id and restart count of the jobs that Slurm takes for running here and of which nothing is here.

    slurmd was killed while their Prolog ran, or slurmctld just after it had put them back. Nothing ends such a run.

    Args:
        ledger: As read.
        evidence: What is really there, and what Slurm says.
        now_s: Seconds since the node's boot.
    """
    found = []
    for held in ledger.reservations:
        slurm = (evidence.present or {}).get(held.job_id)
        age_s = now_s - held.created_s
        if slurm is None or evidence.shows(held.job_id) or not held.managed:
            continue
        never_came = _never_came(held, slurm, evidence, age_s)
        if slurm.running and never_came and slurm.restarts == held.restart:
            found.append((held.job_id, held.restart))
    return tuple(found)


def _over(held: Reservation, evidence: Evidence, now_s: float) -> bool:
    age_s = now_s - held.created_s
    if evidence.shows(held.job_id) or age_s <= YOUNG_S or evidence.present is None:
        return False
    slurm = evidence.present.get(held.job_id)
    if slurm is None or slurm.restarts > held.restart:
        return True
    return (held.job_id, held.restart) in evidence.doubted and _never_came(held, slurm, evidence, age_s)


def _never_came(held: Reservation, slurm: SlurmSays, evidence: Evidence, age_s: float) -> bool:
    """Return whether a run without a slurmstepd will never have one here.

    A Prolog may take as long as its site likes, but none outlives its slurmd: a slurmd that started after the
    reservation was made knows nothing of that run, and slurmctld waits for it without end.
    """
    if slurm.starting_here:
        orphaned = evidence.slurmd_since_s is not None and evidence.slurmd_since_s > held.created_s
        return orphaned and age_s > YOUNG_S
    return slurm.launched_here and age_s > LAUNCH_S
