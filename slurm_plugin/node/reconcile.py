"""Reconcile the node's state: release stale allocations, restore missing ones, remove stale files.

rad-monitor reconciles four times a minute; a hook does if no monitor has for long, and before it requeues a job. All
evidence is collected without the lock; under it the ledger is read again and only changes that still apply are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.errors import LedgerError, SlurmError
from slurm_plugin.core.files.atomic import clear_drafts
from slurm_plugin.core.files.preallocated import SpareFiles
from slurm_plugin.core.ledger.ended_runs import EndedRun, EndedRuns
from slurm_plugin.core.ledger.job_file import JobFile, PlacedFile, placed_files
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.reconcile import (
    YOUNG_S,
    NodeEvidence,
    doubtful,
    missing,
    never_launched,
    rebuild,
    reconcile,
)
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.node.evidence import STARTED, look, present, unknown_holders
from slurm_plugin.node.facts import NodeFacts, read_facts
from slurm_plugin.node.node import Node
from slurm_plugin.node.unconfirmed import earlier_unconfirmed, forget_unconfirmed, record_unconfirmed
from slurm_plugin.slurm.node.processes import living_jobs, slurmd_since_s

LOCK_S = 3.0
"""Part of a hook's time."""

OVERDUE_S = 90.0
"""rad-monitor reconciles four times a minute; after this time without it, a hook does."""

_FIRST_POLL_S, _LONGEST_POLL_S = 0.02, 0.3
"""Growing, so that waiting processes leave the processor to the one that reconciles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """Result of a reconciliation.

    Attributes:
        released: Jobs with a released allocation.
        restored: Jobs with a restored allocation.
        rebuilt: The ledger was lost, and was rebuilt.
    """

    released: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    rebuilt: bool = False

    def __bool__(self) -> bool:
        return bool(self.released or self.restored or self.rebuilt)

    def __str__(self) -> str:
        lists = (("released", self.released), ("restored", self.restored))
        words = [f"{verb} jobs {' '.join(map(str, jobs))}" for verb, jobs in lists if jobs]
        return "reconciled: " + ", ".join([*(["ledger rebuilt"] if self.rebuilt else []), *words])


def reconcile_if_due(node: Node, readings: Sequence[GpuReading]) -> None:
    """Reconcile if that is overdue; if the ledger is lost and another process reconciles now, wait for it.

    Args:
        node: This node.
        readings: Readings of all GPUs of the node.

    Raises:
        LedgerError: The ledger is lost and could not be rebuilt.
    """
    deadline, pause_s = Deadline(node.clock, LOCK_S), _FIRST_POLL_S
    while (due := _due(node)) and not deadline.passed():
        with node.store.reconciling() as own:
            if own:
                if _due(node):
                    reconcile_node(node, readings)
                return
        if due == "overdue":
            return
        node.clock.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_POLL_S)
    if due == "lost":
        raise LedgerError("the ledger is lost, and another hook did not rebuild it in time")


def _due(node: Node) -> Literal["lost", "overdue", ""]:
    found = node.store.read()
    if found.lost:
        return "lost"
    last_s = found.ledger.reconciled_s
    return "overdue" if last_s is None or node.clock.monotonic_s() - last_s > OVERDUE_S else ""


def reconcile_node(node: Node, readings: Sequence[GpuReading]) -> Reconciled:
    """Compare ledger and files with the evidence on the node, and fix them.

    Args:
        node: This node.
        readings: Its GPUs with their processes.

    Raises:
        LedgerError: The ledger cannot be locked or written; nothing was changed.
    """
    facts = read_facts(node) or NodeFacts(slurm_conf=node.slurm_conf)
    files = placed_files(node.run, boot_id=node.store.boot_id)
    earlier = earlier_unconfirmed(node.run, now_s=node.clock.now_s())
    missed = earlier_unconfirmed(node.run, now_s=node.clock.now_s(), kind="missed")
    evidence = look(node, readings, files, facts)
    evidence = replace(evidence, unconfirmed=frozenset(earlier), missed=frozenset(missed))
    forget_unconfirmed(node.run, [each for each in earlier if evidence.shows(each[0])])
    found = node.store.read()
    unknown = unknown_holders(node, evidence, readings) if found.lost else {}
    now_s = node.clock.monotonic_s()
    seen = rebuild(evidence, unknown, now_s=now_s) if found.lost else found.ledger
    if doubtful(seen, evidence, now_s=now_s):
        since_s = slurmd_since_s(facts.name, slurm_conf=facts.slurm_conf, proc=node.proc)
        evidence = replace(evidence, present=present(node, facts), slurmd_since_s=since_s)
    with node.store.locked(Deadline(node.clock, LOCK_S)):
        found = node.store.read()
        left = {
            job_id: allocation
            for job_id, allocation in evidence.placed.items()
            if node.job_file(job_id).exists()
        }
        evidence = replace(evidence, placed=left)  # an Epilog removes the file before the allocation
        after = (
            rebuild(evidence, unknown, now_s=now_s)
            if found.lost
            else reconcile(found.ledger, evidence, now_s=now_s)
        )
        node.store.write(after)
    cleared = [(job_id, None) for job_id in _clear(node, files, after, evidence, now_s)]
    # The next reconciliation asks Slurm, and requeues them.
    record_unconfirmed(node.run, (*never_launched(found.ledger, evidence, now_s=now_s), *cleared))
    seen_again = {*(evidence.present or ()), *evidence.steps, *evidence.on_gpus}
    decided = [each for each in missed if after.of_job(each[0]) is None]
    forget_unconfirmed(node.run, [*decided, *((job_id, None) for job_id in seen_again)], kind="missed")
    record_unconfirmed(node.run, missing(after, evidence, now_s=now_s), kind="missed")
    for folder in (".", "placed", "ended", "unconfirmed", "missed", "waiting", "monitor", "monitor/jobs"):
        clear_drafts(node.run / folder, before_s=node.clock.now_s() - YOUNG_S)
    EndedRuns(node.run).forget_old(now_s=node.clock.now_s())
    SpareFiles(node.run).fill()
    before, now = (
        {allocation.job_id for allocation in ledger.allocations} for ledger in (found.ledger, after)
    )
    return Reconciled(
        released=tuple(sorted(before - now)),
        restored=tuple(sorted(now - before)),
        rebuilt=found.lost,
    )


def run_again(node: Node, job_id: int, restart: int | None) -> bool:
    """Requeue a job that runs here according to Slurm but left no trace on this node; return whether it was requeued.

    Args:
        node: This node.
        job_id: A job that an earlier reconciliation found no trace of.
        restart: The restart count of its run; None if unknown.
    """
    name = (read_facts(node) or NodeFacts()).name
    try:
        view = node.slurm().job(job_id)
        if view is None or not name or (view.node, view.batch, view.requeue) != (name, True, True):
            return False
        # In any other state it may just be starting again.
        if view.state not in (STARTED if restart is not None else STARTED[:1]):
            return False
        if restart not in (None, view.restarts) or node.job_file(job_id).exists():
            return False
        if job_id in living_jobs(slurm_conf=node.slurm_conf, proc=node.proc):
            return False
        node.slurm().requeue_soon(job_id)
    except SlurmError:
        record_unconfirmed(node.run, ((job_id, restart),))  # the only record of the run: it is tried again
        return False
    return True


def _clear(
    node: Node, files: Sequence[PlacedFile], ledger: Ledger, evidence: NodeEvidence, now_s: float
) -> tuple[int, ...]:
    """Remove the files of jobs that neither run nor have an allocation; return the jobs that were refused a start."""
    refused = []
    for file in files:
        alive = evidence.shows(file.job_id) or ledger.of_job(file.job_id) is not None
        young = file.created_s is not None and now_s - file.created_s <= YOUNG_S
        if not alive and not young:
            job_file = JobFile(node.run, file.job_id)
            if job_file.refusal() is not None:
                refused.append(file.job_id)
            if file.allocation is not None and node.config.places and node.manages(file.allocation.partition):
                ended = EndedRun(
                    partition=file.allocation.partition, reported=False
                )  # its Epilog may still run
                EndedRuns(node.run).note(file.job_id, ended)
            job_file.remove()
    return tuple(refused)
