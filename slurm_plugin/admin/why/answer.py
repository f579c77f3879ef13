"""Explain why a job waits, or does not share its GPU, from collected records. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from slurm_plugin.admin.why.facts import (
    GpuRequest,
    WaitFacts,
    is_usable,
    need_of,
    nodes_of,
    of_type,
    shards_of,
)
from slurm_plugin.admin.why.slurm_reasons import Cause, cause_of
from slurm_plugin.core.booking.gres_text import count_of, is_mig, parse_gres
from slurm_plugin.core.comments.admin_comment import read_note
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import counted, human
from slurm_plugin.monitor.export.status import GpuStatus
from slurm_plugin.slurm.control import JobView, put_off

_QUARANTINE = "no MPS server with other users"
_RUNS = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED")
_NOTHING = "nothing: it starts by itself"
_MOST_NODES = 3
_FAR_S = 180 * 86_400
"""Slurm predicts a start a year ahead where earlier jobs have no time limit."""


def answer(facts: WaitFacts) -> tuple[Cause, ...]:
    """Return why a job waits, then why it does not share; the most important cause first."""
    found = (_first(facts), *_not_shared(facts))
    return tuple(replace(cause, fix=cause.fix.replace("ID", str(facts.job.job_id))) for cause in found)


def expected_s(facts: WaitFacts) -> float | None:
    """Return when Slurm expects a waiting job to start, seconds since the epoch; None if it does not know."""
    start_s = facts.job.start_time_s
    known = facts.job.state == "PENDING" and start_s is not None
    return start_s if known and start_s is not None and start_s < facts.time_s + _FAR_S else None


def _first(facts: WaitFacts) -> Cause:
    state = facts.job.state
    if state == "PENDING":
        return _waits(facts)
    if state in _RUNS:
        return Cause(kind="runs", text=_together(facts))
    return Cause(
        kind="ended",
        text=f"it is {state}",
        fix="as root on the controller, rad report ID shows its usage",
    )


def _waits(facts: WaitFacts) -> Cause:
    reason = facts.job.reason
    need = need_of(facts)
    if found := cause_of(reason):
        named = _never(facts, need) if found.kind == "no node" and need else None
        return named if named and named.kind == "no node" else found  # Slurm does not always name the nodes
    if reason == "BeginTime":
        return _put_off(facts)
    if reason not in ("", "Resources", "Priority") or need is None:
        return _in_queue(facts) or Cause(
            kind="resources" if reason in ("", "Resources") else "other",
            text="Slurm has not decided on it yet" if not reason else f"Slurm says {reason}",
            fix="scontrol show job ID",
        )
    cause = _never(facts, need) or _in_queue(facts) or _no_gpu(facts, need)
    note = facts.note
    if note is None or note.event != "recovered" or cause.kind == "never":
        return cause
    boost = "with a priority boost" if note.fault else "with its own priority"
    return Cause(kind="rerun", text=f"it runs again, {boost}: {note.detail}; {cause.text}", fix=_NOTHING)


def _put_off(facts: WaitFacts) -> Cause:
    """Return why a job has a start time in the future."""
    job, note = facts.job, facts.note
    at = "" if job.start_time_s is None else f", at {_time(job.start_time_s)}"
    if put_off(job, now_s=facts.time_s):
        return Cause(kind="begin", text=f"it is not to start yet{at} (--begin, or an admin)")
    if note is not None and note.event == "recovered":
        boost = ", with a priority boost" if note.fault else ""
        return Cause(kind="rerun", text=f"it runs again soon{boost}: {note.detail}", fix=_NOTHING)
    if note is None or note.event not in ("requeued", "woken"):
        return Cause(kind="requeue", text=f"Slurm delays the start of a requeued job{at}", fix=_NOTHING)
    kinds = (("SMACT", "compute"), ("idle", "whole GPU"), ("memory", "memory"), ("guard", "guard"))
    kind = next((kind for word, kind in kinds if word in note.detail), "requeue")
    return Cause(
        kind=kind,
        text=f"when it was to start, its node had nothing for it: {note.detail}; it tries again{at}",
        fix=f"{_NOTHING}, and keeps its queue position",
    )


def _in_queue(facts: WaitFacts) -> Cause | None:
    """Return how many jobs come first, if Slurm names the priority."""
    if facts.job.reason != "Priority":
        return None
    before = sum(
        one.priority > facts.job.priority and bool(set(one.partition.split(",")) & set(facts.partitions))
        for one in facts.waiting
    )
    count = f": {before} of its partition" if before else ""
    return Cause(
        kind="priority",
        text=f"jobs with a higher priority come first{count}",
        fix="sprio -j ID shows its priority; a shorter --time lets it start in gaps",
    )


def _never(facts: WaitFacts, need: GpuRequest) -> Cause | None:
    """Return why no node of its partitions can start it; None if one can, or the nodes are unknown."""
    nodes = nodes_of(facts)
    if not nodes:
        return None
    matching = of_type(nodes, need.type)
    if not matching:
        types = sorted({item.type for node in nodes for item in parse_gres(node.gres) if item.type})
        has = ", ".join(types) or "GPUs without a type"
        return Cause(
            kind="never",
            text=f"no node of its partition has a GPU of type {need.type}; it has {has}",
            fix="request one of these",
        )
    largest = max(map(shards_of, matching))
    if need.shards > largest:
        return Cause(
            kind="never",
            text=f"it requests {counted(need.shards, 'shard')} of a GPU, and the largest has {largest}",
            fix="scancel it, and request at most that",
        )
    total = sum(count_of(parse_gres(node.gres), "gpu") for node in matching)
    if need.gpus > total:
        return Cause(
            kind="never",
            text=f"it requests {counted(need.gpus, 'GPU')}, and the nodes that may run it have {total}",
            fix="scancel it, and request at most that",
        )
    down = [node for node in matching if not is_usable(node)]
    if len(down) < len(matching):
        return None
    names = [f"{node.name} {node.state.lower()}" + f" ({node.reason})" * bool(node.reason) for node in down]
    more = f" and {len(names) - _MOST_NODES} more" * (len(names) > _MOST_NODES)
    return Cause(
        kind="no node",
        text=f"no node that may run it is up: {', '.join(names[:_MOST_NODES])}{more}",
        fix="your admin; sinfo -R",
    )


def _no_gpu(facts: WaitFacts, need: GpuRequest) -> Cause:
    """Return what no GPU has free, as far as rad-monitors show it."""
    usable = {node.name for node in of_type(nodes_of(facts), need.type) if is_usable(node)}
    gpus = [
        (node.name, gpu)
        for node in facts.fleet
        if node.name in usable and node.status
        for gpu in node.status.gpus
        if gpu.state == "ok"
    ]
    kind = f" of type {need.type}" if need.type else ""
    if not gpus:
        return Cause(
            kind="resources",
            text=f"no node has everything free that it requests: GPUs{kind}, shards, CPUs or memory",
            fix="rad-estimate job.sh --ask says when it would start",
        )
    if not need.shards:
        idle = sum(not gpu.jobs for _, gpu in gpus)
        if idle < need.gpus:
            return Cause(
                kind="whole GPU",
                text=f"it needs {_whole(need.gpus)}{kind}, and {idle} of {len(gpus)} GPUs are idle",
                fix="#RAD model= lets it share; or wait",
            )
        return _other_resources(f"{idle} of {len(gpus)} GPUs are idle")
    size = human(need.memory_bytes)
    fitting = [(name, gpu) for name, gpu in gpus if _free_bytes(gpu) >= need.memory_bytes]
    if len(fitting) < need.gpus:
        name, gpu = max(gpus, key=lambda pair: _free_bytes(pair[1]))
        most = f"the most is {human(_free_bytes(gpu))}, on {name} GPU {gpu.index}"
        return Cause(
            kind="memory",
            text=f"no GPU{kind} has {size} left to book: {most}",
            fix="rad-estimate job.sh --ask says when it would start",
        )
    name, gpu = min(fitting, key=lambda pair: len(pair[1].jobs))
    free = f"{name} GPU {gpu.index} has its {size} free"
    settings = facts.settings or PartitionConfig()
    if gpu.jobs and need.shards > -(-need.memory_bytes // settings.shard_bytes):
        return Cause(
            kind="compute",
            text=f"{free}, but not the {counted(need.shards, 'shard')} that it requests for its compute",
            fix=f"{_NOTHING} when jobs there end; compute_overcommit is the admin's limit",
        )
    return _other_resources(free)


def _other_resources(free: str) -> Cause:
    return Cause(
        kind="resources",
        text=f"{free}; what it lacks there is CPUs, host memory, or shards that others request for compute",
        fix="request fewer CPUs or less --mem for each GPU; scontrol show node has what is left",
    )


def _not_shared(facts: WaitFacts) -> Iterator[Cause]:
    """Yield why a job does not share its GPU, or not with everyone."""
    need, booking, settings = need_of(facts), facts.booking, facts.settings
    if any(map(is_mig, parse_gres(facts.job.gres))):
        yield Cause(kind="not shared", text="a MIG instance is not shared")
        return
    if need is None or not facts.config.partitions or facts.job.state not in ("PENDING", *_RUNS):
        return
    if settings is None or not settings.collocate:
        yield Cause(kind="not shared", text=f"RAD shares no GPUs in partition {facts.job.partition}")
        return
    if facts.config.mode != "enforce" or not facts.config.features.submit:
        yield Cause(kind="not shared", text="RAD changes no jobs now (mode or features.submit in rad.toml)")
        return
    if booking is None:
        if settings.default != "leave" and not need.shards and need.gpus == 1:
            yield Cause(
                kind="radd away",
                text="RAD has not booked it, so it gets the whole GPU that it requests: radd did not answer when it "
                "was submitted, its comment was changed, or it has several nodes or components",
                fix="to share a GPU, cancel it and submit it again; admins: systemctl status radd",
            )
        return
    if booking.kind == "whole":
        yield Cause(kind="not shared", text=_why_whole(facts.job, booking, settings))
        return
    note = read_note(facts.job.admin_comment)
    if booking.own_server:
        yield Cause(
            kind="own server",
            text="it shares no MPS server (mps_server=own), so it takes turns with other jobs on its GPU",
        )
    elif note is not None and _QUARANTINE in note.detail:
        yield Cause(kind="quarantine", text=note.detail, fix="find the fault: compute-sanitizer program")


def _why_whole(job: JobView, booking: Booking, settings: PartitionConfig) -> str:
    whole = f"it has {_whole(booking.gpus)}"
    if booking.recoveries:
        return f"{whole} because it ran out of memory before"
    if not job.batch:
        return f"{whole}, as salloc or srun requested it on the login node"
    if booking.gpus > 1 and not settings.share_multi_gpu:
        return f"{whole} because jobs of several GPUs do not share them here"
    if settings.policy == "exclusive":
        return f"{whole} because its partition's policy is exclusive"
    if booking.estimate_bytes is None:
        return f"{whole} because its need is unknown (no usable #RAD line), or by policy=exclusive"
    return (
        f"{whole} by policy=exclusive, or because it may fill it: estimated {human(booking.estimate_bytes)}"
    )


def _together(facts: WaitFacts) -> str:
    """Return where a job runs, and with which others."""
    own = facts.job.job_id
    parts = []
    for node in facts.fleet:
        for gpu in node.status.gpus if node.status else ():
            if any(job.job_id == own for job in gpu.jobs):
                others = [str(job.job_id) for job in gpu.jobs if job.job_id != own]
                neighbours = f"with {', '.join(others)}" if others else "alone"
                parts.append(f"{node.name} GPU {gpu.index} {neighbours}")
    return f"it runs on {'; '.join(parts)}" if parts else f"it runs on {facts.job.node or 'its node'}"


def _free_bytes(gpu: GpuStatus) -> int:
    """Return the memory of a GPU that another job may book."""
    if any(job.kind == "whole" for job in gpu.jobs):
        return 0
    return max(0, gpu.usable_bytes - gpu.booked_bytes - gpu.unmanaged_bytes)


def _whole(gpus: int) -> str:
    return "a whole GPU" if gpus == 1 else f"{gpus} whole GPUs"


def _time(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).strftime("%Y-%m-%d %H:%M")
