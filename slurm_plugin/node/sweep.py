"""Keep the node's state true: give back what nobody released, put back what was lost, clear what nobody cleared.

rad-monitor sweeps four times a minute; a hook does where no monitor has for long, and before it puts a job back. All
evidence is collected without the lock; under it the ledger is read again and only what still holds is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.errors import ConfigError, LedgerError, SlurmError
from slurm_plugin.core.gpu import GpuReading
from slurm_plugin.core.gres import count_of, parse_gres
from slurm_plugin.core.job_file import JobFile, PlacedFile, placed_files
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.core.reconcile import (
    YOUNG_S,
    Evidence,
    SlurmSays,
    doubtful,
    never_launched,
    rebuild,
    reconcile,
)
from slurm_plugin.core.records import Reservation
from slurm_plugin.core.spare_files import SpareFiles
from slurm_plugin.core.wire import read_key, read_stamp
from slurm_plugin.node.facts import NodeFacts, read_facts
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.control import JobView
from slurm_plugin.slurm.processes import claimed_gpus, living_jobs, owners_of, slurmd_since_s

LOCK_S = 3.0
"""Of a hook's five seconds."""

UNSWEPT_S = 90.0
"""rad-monitor sweeps four times a minute; after so long there is none, and a hook does it."""

_FIRST_POLL_S, _LONGEST_POLL_S = 0.02, 0.3
"""Growing, so that those who wait leave the processor to the one that sweeps."""

_STARTED = ("RUNNING", "CONFIGURING")
_ON_NODE = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep did.

    Attributes:
        released: Jobs whose reservation was given back.
        restored: Jobs whose reservation was missing.
        rebuilt: The ledger was lost, and is there again.
        doubted: Jobs that Slurm may take for running here although nothing of them is, with the run's restart count
            where it is known: whoever sweeps again asks and lets them run again.
    """

    released: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    rebuilt: bool = False
    doubted: tuple[tuple[int, int | None], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.released or self.restored or self.rebuilt)

    def __str__(self) -> str:
        lists = (("released", self.released), ("restored", self.restored))
        words = [f"{verb} jobs {' '.join(map(str, jobs))}" for verb, jobs in lists if jobs]
        return "sweep: " + ", ".join([*(["ledger rebuilt"] if self.rebuilt else []), *words])


def sweep_if_due(node: Node, readings: Sequence[GpuReading]) -> None:
    """Sweep where nobody has for long, or wait for whoever does it now if the ledger is lost.

    Args:
        node: This node.
        readings: Readings of all GPUs of the node.

    Raises:
        LedgerError: The ledger is lost and could not be rebuilt.
    """
    deadline, pause_s = Deadline(node.clock, LOCK_S), _FIRST_POLL_S
    while (due := _due(node)) and not deadline.passed():
        with node.store.sweeping() as ours:
            if ours:
                if _due(node):
                    sweep(node, readings)
                return
        if due == "unswept":
            return
        node.clock.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_POLL_S)
    if due == "lost":
        raise LedgerError("the ledger is lost, and another hook did not rebuild it in time")


def _due(node: Node) -> Literal["lost", "unswept", ""]:
    found = node.store.read()
    if found.lost:
        return "lost"
    last_s = found.ledger.swept_s
    return "unswept" if last_s is None or node.clock.monotonic_s() - last_s > UNSWEPT_S else ""


def sweep(node: Node, readings: Sequence[GpuReading]) -> Swept:
    """Compare ledger and files with what is really there, and mend them.

    Args:
        node: This node.
        readings: Its GPUs with their processes.

    Raises:
        LedgerError: The ledger cannot be locked or written; nothing was changed.
    """
    facts = read_facts(node) or NodeFacts(slurm_conf=node.slurm_conf)
    files = placed_files(node.run, boot_id=node.store.boot_id)
    evidence = _look(node, readings, files, facts)
    found = node.store.read()
    unknown = _unknown_holders(node, evidence, readings) if found.lost else {}
    now_s = node.clock.monotonic_s()
    seen = rebuild(evidence, unknown, now_s=now_s) if found.lost else found.ledger
    if doubtful(seen, evidence, now_s=now_s):
        since_s = slurmd_since_s(facts.name, slurm_conf=facts.slurm_conf, proc=node.proc)
        evidence = replace(evidence, present=_present(node, facts), slurmd_since_s=since_s)
    with node.store.locked(Deadline(node.clock, LOCK_S)):
        found = node.store.read()
        left = {job_id: held for job_id, held in evidence.placed.items() if node.job_file(job_id).exists()}
        evidence = replace(evidence, placed=left)  # an Epilog takes the file away before the reservation
        after = (
            rebuild(evidence, unknown, now_s=now_s)
            if found.lost
            else reconcile(found.ledger, evidence, now_s=now_s)
        )
        node.store.write(after)
    doubted = never_launched(found.ledger, evidence, now_s=now_s)
    refused = _clear(node, files, after, evidence, now_s)
    SpareFiles(node.run).fill()
    before, now = ({held.job_id for held in ledger.reservations} for ledger in (found.ledger, after))
    return Swept(
        released=tuple(sorted(before - now)),
        restored=tuple(sorted(now - before)),
        rebuilt=found.lost,
        doubted=(*doubted, *((job_id, None) for job_id in refused)),
    )


def run_again(node: Node, job_id: int, restart: int | None) -> bool:
    """Put a job back into the queue if Slurm still takes it for running here and nothing of it is here; say whether.

    Args:
        node: This node.
        job_id: A job that an earlier sweep doubted.
        restart: The restart count of its run; None if unknown.
    """
    name = (read_facts(node) or NodeFacts()).name
    try:
        view = node.slurm().job(job_id)
        if view is None or not name or (view.node, view.batch) != (name, True):
            return False
        if view.state not in (
            _STARTED if restart is not None else _STARTED[:1]
        ):  # it may just be starting anew
            return False
        if restart not in (None, view.restarts) or node.job_file(job_id).exists():
            return False
        if job_id in living_jobs(slurm_conf=node.slurm_conf, proc=node.proc):
            return False
        node.slurm().requeue(job_id)
    except SlurmError:
        return False
    return True


def _look(
    node: Node, readings: Sequence[GpuReading], files: Sequence[PlacedFile], facts: NodeFacts
) -> Evidence:
    pids = {process.pid for reading in readings for process in reading.processes}
    owners = owners_of(pids, proc=node.proc)
    on_gpus: dict[int, frozenset[str]] = {}
    for reading in readings:
        for process in reading.processes:
            owner = owners.get(process.pid)
            if owner is not None and owner.certain:
                on_gpus[owner.job_id] = on_gpus.get(owner.job_id, frozenset()) | {reading.uuid}
    return Evidence(
        steps=living_jobs(slurm_conf=facts.slurm_conf, proc=node.proc),
        on_gpus=on_gpus,
        placed={file.job_id: file.held for file in files if file.held is not None},
    )


def _present(node: Node, facts: NodeFacts) -> Mapping[int, SlurmSays] | None:
    """Return what Slurm has on this node; None if it does not answer."""
    try:
        views = node.slurm().jobs(node=facts.name or None, states=_ON_NODE)
    except SlurmError:
        return None
    return {view.job_id: _says(view, facts.name) for view in views}


def _says(view: JobView, name: str) -> SlurmSays:
    here = view.batch and bool(name) and view.node == name
    starting = view.state == "CONFIGURING" or view.reason == "Prolog"
    return SlurmSays(
        restarts=view.restarts,
        launched_here=here and not starting,
        starting_here=here and starting,
        running=view.state in _STARTED,
    )


def _unknown_holders(
    node: Node, evidence: Evidence, readings: Sequence[GpuReading]
) -> dict[int, Reservation]:
    """Return what jobs hold of which nothing is left but their processes, for a ledger that is lost altogether.

    Where they are is what the driver shows, else what their own tasks name. How much they hold is what their signed
    booking says, if Slurm answers, else the whole GPU.
    """
    usable = {reading.uuid: (reading.index, reading.usable_bytes) for reading in readings}
    strays = (evidence.steps | evidence.on_gpus.keys()) - evidence.placed.keys()
    hidden = strays - evidence.on_gpus.keys()
    claims = claimed_gpus(hidden, proc=node.proc)
    found = {}
    for job_id in sorted(strays):
        gpus = tuple(sorted(evidence.on_gpus.get(job_id, claims.get(job_id, ()))))
        known = tuple(uuid for uuid in gpus if uuid in usable)
        if known:
            found[job_id] = _of_stray(node, job_id, known, usable)
    return found


def _of_stray(
    node: Node, job_id: int, gpus: tuple[str, ...], usable: Mapping[str, tuple[int, int]]
) -> Reservation:
    whole = Reservation(
        job_id=job_id,
        user_id=0,
        kind="whole",
        gpus=gpus,
        seats=tuple(usable[uuid][0] for uuid in gpus),
        booked_bytes=min(usable[uuid][1] for uuid in gpus),
        created_s=node.clock.monotonic_s(),
    )
    try:
        view = node.slurm().job(job_id)
        key = read_key(Path(node.config.paths.key))
    except (SlurmError, ConfigError):
        return whole
    if view is None:
        return whole
    known = replace(whole, user_id=view.user_id, restart=view.restarts)
    booking = read_stamp(view.comment, user_id=view.user_id, key=key)
    if booking is None or booking.kind != "shared" or booking.memory_bytes is None or len(gpus) != 1:
        return known
    if count_of(parse_gres(view.gres), "gpu"):
        return known
    return replace(
        known,
        kind="shared",
        booked_bytes=booking.memory_bytes,
        cap_bytes=booking.cap_bytes,
        estimate_bytes=booking.estimate_bytes,
        profile_key=booking.profile_key,
        smact=booking.smact,
    )


def _clear(
    node: Node, files: Sequence[PlacedFile], ledger: Ledger, evidence: Evidence, now_s: float
) -> tuple[int, ...]:
    """Take away the files of jobs that neither live nor hold anything; return the jobs that were not let start."""
    refused = []
    for file in files:
        alive = evidence.shows(file.job_id) or ledger.of_job(file.job_id) is not None
        young = file.created_s is not None and now_s - file.created_s <= YOUNG_S
        if not alive and not young:
            job_file = JobFile(node.run, file.job_id)
            if job_file.refusal() is not None:
                refused.append(file.job_id)
            job_file.remove()
    return tuple(refused)
