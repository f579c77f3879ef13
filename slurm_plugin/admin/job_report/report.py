"""Report on one job, computed from the collected facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slurm_plugin.core.comments.admin_comment import Note, read_note
from slurm_plugin.core.history.advice import next_time
from slurm_plugin.core.history.models import Model
from slurm_plugin.core.history.runs import Run
from slurm_plugin.core.logs.events import Entry
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.monitor.export.status import GpuStatus
from slurm_plugin.simulate.gpus.interference import Load, slowdowns
from slurm_plugin.slurm.queries.job_times import JobTimes

_OF_THE_RUN_BEFORE = ("recovered", "requeued", "woken")
"""Notes with the restart count of the rerun, about the run before it."""

INTENSITY = 0.69
"""Share of the SMs that a training keeps busy while its kernels run: the median of simulate/traces/workloads.csv.
A monitor reports SM activity alone; this converts it to the share of time in which kernels run, which the slowdown
model needs.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """Facts found about a job; None or empty where nothing was found.

    Attributes:
        job_id: Slurm's job id.
        times: Slurm's record of the job.
        booking: Its last booking, from its signed comment.
        runs: Every remembered run, of all jobs.
        models: Known models, by user and profile key.
        events: What hooks and daemons of this machine did to the job.
        live: The GPUs it uses now, each with its node's name.
        remembered: Whether radd books a model's measured need.
        missing: Sources that could not be read, one sentence each.
    """

    job_id: int
    times: JobTimes | None = None
    booking: Booking | None = None
    runs: Sequence[Run] = ()
    models: Mapping[tuple[int, str], Model] | None = None
    events: Sequence[Entry] = ()
    live: Sequence[tuple[str, GpuStatus]] = ()
    remembered: bool = True
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another job on one of this job's GPUs.

    Attributes:
        job_id: Its job id.
        user_id: Its owner.
        together_s: How long both ran there; None while both still do.
        mean_smact: Its mean SM activity, or None.
    """

    job_id: int
    user_id: int
    together_s: float | None
    mean_smact: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Report on one run.

    Attributes:
        run: Its record in the history.
        neighbours: Jobs on its GPUs during the run, as far as they have ended.
        slowdown: How many times longer it took than alone, by a model; None if activity is unknown.
    """

    run: Run
    neighbours: tuple[Neighbour, ...]
    slowdown: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """Report on a job.

    Attributes:
        found: The facts it is computed from.
        user_id: The owner; None if unknown.
        model: The model it trains; None if unknown.
        runs: Its runs, in order.
        waited_s: From submission, or the last requeue, to the start of the last run; None if unknown.
        note: RAD's note in Slurm on a run that is not among them; None if there is none.
        nearby: Other jobs on its GPUs now.
        advice: What to do next time.
    """

    found: JobFacts
    user_id: int | None
    model: Model | None
    runs: tuple[RunReport, ...]
    waited_s: float | None
    note: Note | None
    nearby: tuple[Neighbour, ...]
    advice: tuple[str, ...]

    @property
    def known(self) -> bool:
        """Return whether anything is known of the job."""
        return bool(self.found.times or self.runs or self.found.events)


def report_of(found: JobFacts) -> JobReport:
    """Return the report on a job."""
    own = {run.restart: run for run in found.runs if run.job_id == found.job_id}  # an Epilog may run twice
    runs = sorted(own.values(), key=lambda run: run.time_s or 0.0)
    users = [run.user_id for run in runs]
    user_id = found.times.user_id if found.times else next(iter(users), None)
    keys = [run.profile_key for run in runs if run.profile_key]
    key = found.booking.profile_key if found.booking else next(reversed(keys), None)
    models = found.models or {}
    times = found.times
    waited_s = None
    if times and times.submit_s is not None and times.start_s is not None and times.state != "PENDING":
        waited_s = max(0.0, times.start_s - times.submit_s)
    return JobReport(
        found=found,
        user_id=user_id,
        model=models.get((user_id, key)) if user_id is not None and key else None,
        runs=tuple(_run(run, found.runs) for run in runs),
        waited_s=waited_s,
        note=_note(times, own) if times else None,
        nearby=_neighbours(found),
        advice=next_time(runs[-1], remembered=found.remembered) if runs else (),
    )


def _note(times: JobTimes, own: Mapping[int | None, Run]) -> Note | None:
    """Return the note on a run that the history here does not have: nodes may record elsewhere."""
    note = read_note(times.admin_comment)
    if note is None or note.restart is None or note.event == "booked":
        return None
    about = note.restart - 1 if note.event in _OF_THE_RUN_BEFORE else note.restart
    return None if about in own else note


def _run(run: Run, runs: Sequence[Run]) -> RunReport:
    nearby = {other.job_id: other for other in runs if other.job_id != run.job_id and _together_s(run, other)}
    others = sorted(nearby.values(), key=lambda other: _together_s(run, other), reverse=True)
    neighbours = tuple(
        Neighbour(
            job_id=other.job_id or 0,
            user_id=other.user_id,
            together_s=_together_s(run, other),
            mean_smact=other.mean_smact,
        )
        for other in others
    )
    return RunReport(run=run, neighbours=neighbours, slowdown=slowdown_of(run, others))


def _together_s(run: Run, other: Run) -> float:
    """Return how long two runs shared a GPU; 0 if they never did, or if unknown."""
    if run.start_s is None or run.time_s is None or other.start_s is None or other.time_s is None:
        return 0.0
    if run.job_id is None or other.job_id is None or not set(run.gpus) & set(other.gpus):
        return 0.0
    return max(0.0, min(run.time_s, other.time_s) - max(run.start_s, other.start_s))


def slowdown_of(run: Run, others: Sequence[Run]) -> float | None:
    """Return how many times longer a run took than alone, by the interference model; None if unknown.

    Args:
        run: The run.
        others: Runs of other jobs on its GPU during the run.
    """
    start_s, end_s = run.start_s, run.time_s
    if _activity(run) is None or start_s is None or end_s is None or end_s <= start_s:
        return None
    known = [other for other in others if _activity(other) is not None]
    edges = sorted(
        {start_s, end_s, *(min(max(t or 0.0, start_s), end_s) for o in known for t in (o.start_s, o.time_s))}
    )
    alone_s = 0.0
    for first, last in pairwise(edges):
        here = [o for o in known if (o.start_s or 0.0) <= first and (o.time_s or 0.0) >= last]
        loads = [_load(_activity(one) or 0.0) for one in (run, *here)]
        alone_s += (last - first) / slowdowns(loads)[0]
    return (end_s - start_s) / alone_s


def _activity(run: Run) -> float | None:
    """Return the SM activity of a run alone, or at least what was measured of it."""
    return run.mean_smact if run.smact is None else run.smact


def _load(smact: float) -> Load:
    return Load(smact=smact, busy=min(1.0, smact / INTENSITY))


def _neighbours(found: JobFacts) -> tuple[Neighbour, ...]:
    jobs = {job.job_id: job for _, gpu in found.live for job in gpu.jobs if job.job_id != found.job_id}
    return tuple(
        Neighbour(job_id=job.job_id, user_id=job.user_id, together_s=None, mean_smact=job.smact)
        for job in jobs.values()
    )
