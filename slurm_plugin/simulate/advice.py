"""`rad advise`: compare last month's jobs as requested and shared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.records.submission import ServerScope
from slurm_plugin.core.units import counted
from slurm_plugin.simulate.command import simulate
from slurm_plugin.simulate.question import SimulationQuestion
from slurm_plugin.simulate.traces.job import TraceJob, as_words
from slurm_plugin.simulate.traces.read import read_trace
from slurm_plugin.slurm.versions import Version, release_of

HOUR_S, JOULES_PER_KWH = 3600.0, 3.6e6
ROWS: tuple[tuple[str, str, float, str], ...] = (
    ("mean waiting", "mean_waiting_s", 3600, "h"),
    ("mean completion", "mean_completion_s", 3600, "h"),
    ("until the last job ended", "makespan_s", 3600, "h"),
    ("energy until then", "energy_j", JOULES_PER_KWH, "kWh"),
    ("GPUs allocated", "gpu_held_share", 0.01, "%"),
    ("median slowdown", "median_slowdown", 1, ""),
    ("P95 slowdown", "p95_slowdown", 1, ""),
    ("jobs over their limit", "over_limit", 1, ""),
    ("out of memory, requeued", "recoveries", 1, ""),
)
"""Rows of the table: name, figure, divisor, unit."""
PASSED_S = 14_400
"""The bf_min_age_reserve that is tried if none was given: four hours, as in the replays (docs/results.md)."""
WORTH_TELLING = 0.95
"""It is mentioned if it reduces mean completion to this share or less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What sharing would have changed.

    Attributes:
        jobs: Jobs of the trace.
        slurm: The simulated version of Slurm.
        known: Jobs whose peak of GPU memory is in the trace; the others would keep their GPU.
        whole: Figures with a GPU for each job.
        shared: Figures with RAD.
        passed: Figures with RAD where Slurm's backfill may start jobs ahead of those that have waited for less than
            PASSED_S; None if the site's setting was given.
        servers: Figures with RAD for each other `mps_server`, where the jobs have several users.
        assumed_mib: Assumed need of jobs of unknown peak; None if they keep their GPU.
    """

    jobs: int
    slurm: Version
    known: int
    whole: dict[str, Any]
    shared: dict[str, Any]
    passed: dict[str, Any] | None = None
    servers: Mapping[ServerScope, dict[str, Any]] = field(default_factory=dict)
    assumed_mib: int | None = None

    @property
    def saved(self) -> dict[str, float]:
        """Return what sharing would have saved; negative values are costs."""
        return {
            "gpu_hours": round((self.whole["gpu_held_s"] - self.shared["gpu_held_s"]) / HOUR_S, 1),
            "energy_kwh": round((self.whole["energy_j"] - self.shared["energy_j"]) / JOULES_PER_KWH, 1),
            "waiting_hours": round(
                self.jobs_done * (self.whole["mean_waiting_s"] - self.shared["mean_waiting_s"]) / HOUR_S, 1
            ),
        }

    @property
    def jobs_done(self) -> int:
        """Return the number of simulated jobs."""
        return int(self.whole["jobs"])


def advise(question: SimulationQuestion, clock: Clock, *, show_progress: bool = False) -> Advice:
    """Simulate a trace both ways, and shared once more with the other backfill setting if none was given.

    Args:
        question: The cluster, the settings, and sacct's file as its trace.
        clock: Measures how long the simulation took.
        show_progress: Draw a progress bar for each variant on the error output.

    Raises:
        ConfigError: The trace cannot be read, or no job of it fits the cluster.
    """
    jobs = read_trace(question.trace, question.partition).jobs
    shared = replace(question, baseline="rad")
    ways = [replace(question, baseline="whole"), shared]
    if not question.min_age_reserve_s:
        ways.append(replace(shared, min_age_reserve_s=PASSED_S))
    found = [simulate(way, clock, show_progress=show_progress) for way in ways]
    servers = {
        scope: simulate(
            replace(shared, settings=replace(question.settings, mps_server=scope)),
            clock,
            show_progress=show_progress,
        )
        for scope in _other_servers(question, jobs)
    }
    return Advice(
        jobs=len(jobs),
        slurm=question.slurm,
        known=sum(job.memory_bytes is not None for job in jobs),
        whole=found[0],
        shared=found[1],
        passed=found[2] if len(found) > 2 else None,
        servers=servers,
        assumed_mib=question.assumed_mib,
    )


def _other_servers(question: SimulationQuestion, jobs: Sequence[TraceJob]) -> tuple[ServerScope, ...]:
    """Return the other choices of `mps_server` that can make a difference: none where one user has all jobs."""
    settings = question.settings
    users = question.users or len({job.user for job in jobs})
    if users < 2 or settings.sharing != "mps" or settings.one_user_per_gpu:
        return ()
    accounts = bool(question.users) or any(job.account for job in jobs)
    scopes: tuple[ServerScope, ...] = ("user", "account", "gpu") if accounts else ("user", "gpu")
    return tuple(scope for scope in scopes if scope != settings.mps_server)


def as_text(advice: Advice) -> str:
    """Return a table as text."""
    lines = [f"{'':<26}{'whole GPUs':>15}{'shared':>15}"]
    for name, figure, divisor, unit in ROWS:
        cells = (
            f"{_number(found[figure] / divisor)} {unit}".rstrip() for found in (advice.whole, advice.shared)
        )
        lines.append(f"{name:<26}" + "".join(f"{cell:>15}" for cell in cells))
    saved = advice.saved
    lines += [
        "",
        f"Sharing would have saved {_number(saved['gpu_hours'])} GPU hours and "
        f"{_number(saved['waiting_hours'])} hours of waiting, over {counted(advice.jobs_done, 'job')}.",
        *_passing(advice),
        *_serving(advice),
        f"Simulated as Slurm {release_of(advice.slurm)} counts and plans shared GPUs; --slurm names another.",
        f"{advice.known} of {advice.jobs} jobs have a known peak of GPU memory.",
    ]
    if advice.known < advice.jobs and advice.assumed_mib is not None:
        lines.append(
            f"The other jobs with one GPU are assumed to need {advice.assumed_mib} MiB (--assume-mib)."
        )
    elif advice.known < advice.jobs:
        lines.append(
            "The others get a whole GPU here; --assume-mib sets an assumed peak. Let Slurm record peaks with "
            "AccountingStorageTRES=gres/gpumem and AutoDetect=nvml."
        )
    unknown = advice.whole["unknown_workloads"]
    if unknown:
        lines.append(
            f"The GPU activity of {unknown} of them was not measured: they count as the median of measured trainings, "
            "without a pause for data, so slowdowns look worse here than they are where loaders are slow."
        )
    left_out = advice.whole["left_out"]
    if left_out:
        lines.append(f"Left out: {as_words(left_out)}.")
    return "\n".join(lines)


def _passing(advice: Advice) -> list[str]:
    """Return the gain if Slurm's backfill could pass jobs that waited briefly; empty if the gain is small."""
    passed, shared = advice.passed, advice.shared
    if passed is None or passed["mean_completion_s"] > WORTH_TELLING * shared["mean_completion_s"]:
        return []
    completion, waiting = (
        f"{_number(passed[figure] / HOUR_S)} h instead of {_number(shared[figure] / HOUR_S)} h"
        for figure in ("mean_completion_s", "mean_waiting_multi_gpu_s")
    )
    return [
        f"With SchedulerParameters=bf_min_age_reserve={PASSED_S} in slurm.conf (in all partitions: jobs that waited "
        f"for less than {PASSED_S / HOUR_S:g} hours may be passed), mean completion would be {completion}, and jobs of "
        f"several GPUs would wait for {waiting}."
    ]


def _serving(advice: Advice) -> list[str]:
    """Return what each other `mps_server` would change."""
    lines = []
    for scope, found in advice.servers.items():
        completion, makespan = (
            f"{_number(found[figure] / HOUR_S)} h instead of {_number(advice.shared[figure] / HOUR_S)} h"
            for figure in ("mean_completion_s", "makespan_s")
        )
        slowed = f"{_number(found['p95_slowdown'])} instead of {_number(advice.shared['p95_slowdown'])}"
        lines.append(
            f'With mps_server = "{scope}", mean completion would be {completion}, the last job would end after '
            f"{makespan}, and the P95 slowdown would be {slowed} (docs/admin/isolation.md has the risk)."
        )
    return lines


def _number(value: float) -> str:
    """Return a number formatted for people.

    >>> _number(14190.4), _number(2.8019), _number(0.0)
    ('14,190', '2.8', '0')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def as_json(advice: Advice) -> str:
    """Return one JSON object."""
    return json.dumps(
        {
            "jobs": advice.jobs,
            "known": advice.known,
            "saved": advice.saved,
            "whole": advice.whole,
            "shared": advice.shared,
            "passed": advice.passed,
            "servers": advice.servers,
        }
    )
