"""Collect the evidence for a reconciliation: what only root can create, and Slurm's answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.comments.signed_comment import read_key, read_signed_booking
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.core.ledger.job_file import PlacedFile
from slurm_plugin.core.ledger.reconcile import NodeEvidence, SlurmState
from slurm_plugin.core.process.identity import owner_of
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.node.facts import NodeFacts
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.control import JobView
from slurm_plugin.slurm.node.daemons import Belonging
from slurm_plugin.slurm.node.processes import claimed_gpus, living_jobs, owners_of

STARTED = ("RUNNING", "CONFIGURING")
"""States of a job that count as running in Slurm."""
_ON_NODE = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT")


def look(
    node: Node, readings: Sequence[GpuReading], files: Sequence[PlacedFile], facts: NodeFacts
) -> NodeEvidence:
    """Return the evidence of jobs on this node: slurmstepds, processes on GPUs, the Prolog's files.

    Args:
        node: This node.
        readings: Its GPUs with their processes.
        files: The Prolog's files.
        facts: Slurm's facts about the node.
    """
    pids = {process.pid for reading in readings for process in reading.processes}
    owners = owners_of(pids, proc=node.proc)
    users = {file.job_id: file.allocation.user_id for file in files if file.allocation is not None}
    on_gpus: dict[int, frozenset[str]] = {}
    for reading in readings:
        for process in reading.processes:
            owner = owners.get(process.pid)
            if owner is not None and owner.certain and _is_its(owner, process.pid, users, node):
                on_gpus[owner.job_id] = on_gpus.get(owner.job_id, frozenset()) | {reading.uuid}
    return NodeEvidence(
        steps=living_jobs(slurm_conf=facts.slurm_conf, proc=node.proc),
        on_gpus=on_gpus,
        placed={file.job_id: file.allocation for file in files if file.allocation is not None},
    )


def _is_its(owner: Belonging, pid: int, users: Mapping[int, int], node: Node) -> bool:
    """Return whether a process runs as the user of its job, where that is known."""
    user_id = users.get(owner.job_id)
    return not user_id or owner_of(pid, node.proc) == user_id


def present(node: Node, facts: NodeFacts) -> Mapping[int, SlurmState] | None:
    """Return the jobs that Slurm has on this node, by job id; None if it does not answer.

    Args:
        node: This node.
        facts: Slurm's facts about the node.
    """
    try:
        views = node.slurm().jobs(node=facts.name or None, states=_ON_NODE)
    except SlurmError:
        return None
    return {view.job_id: _says(view, facts.name) for view in views}


def _says(view: JobView, name: str) -> SlurmState:
    here = view.batch and bool(name) and view.node == name
    starting = view.state == "CONFIGURING" or view.reason == "Prolog"
    return SlurmState(
        restarts=view.restarts,
        launched_here=here and not starting,
        starting_here=here and starting,
        running=view.state in STARTED,
    )


def unknown_holders(
    node: Node, evidence: NodeEvidence, readings: Sequence[GpuReading]
) -> dict[int, Allocation]:
    """Return allocations of jobs of which only processes are left, for a completely lost ledger.

    Their GPUs are those that the driver shows, otherwise those that their own tasks name. Their size is that of their
    signed booking if Slurm answers, otherwise the whole GPU.

    Args:
        node: This node.
        evidence: Evidence from this node.
        readings: Its GPUs with their processes.
    """
    usable = {reading.uuid: (reading.index, reading.usable_bytes) for reading in readings}
    strays = (evidence.steps | evidence.on_gpus.keys()) - evidence.placed.keys()
    hidden = strays - evidence.on_gpus.keys()
    stated = claimed_gpus(hidden, proc=node.proc)
    found = {}
    for job_id in sorted(strays):
        gpus = tuple(sorted(evidence.on_gpus.get(job_id, stated.get(job_id, ()))))
        known = tuple(uuid for uuid in gpus if uuid in usable)
        if known:
            found[job_id] = _of_stray(node, job_id, known, usable)
    return found


def _of_stray(
    node: Node, job_id: int, gpus: tuple[str, ...], usable: Mapping[str, tuple[int, int]]
) -> Allocation:
    whole = Allocation(
        job_id=job_id,
        user_id=0,
        kind="whole",
        gpus=gpus,
        gpu_indices=tuple(usable[uuid][0] for uuid in gpus),
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
    booking = read_signed_booking(view.comment, user_id=view.user_id, key=key)
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
