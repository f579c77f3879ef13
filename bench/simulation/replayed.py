"""Compare replays on real GPUs with their simulation.

    PYTHONPATH=bench:. python bench/simulation/replayed.py RUN.json ...

Each job is simulated as it was replayed: when it came, its loader, its memory, its limit, and what it booked of a GPU
in that run. How long it takes to its first step, and from there, is what it took in the run with whole GPUs of the same
trace and compression that is nearest in time, which must be among the files; how long Slurm takes from one end to the
next start is drawn from what it took there. Nothing is set by hand. Which GPU is idle when hangs on tenths of a second,
so each run is simulated DRAWS times, and medians are compared. Replays with faults are left out: it has none.

Prints a row for each run; the exit status is 1 if any is further off than MAKESPAN, COMPLETION or CRASHES. A run that
was cut off is compared at its cut: how many jobs were done, and when those came to their ends.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from replay.report.runs import run_record

from lab.config import shards_of
from slurm_plugin.core.booking.size import compute_shards
from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.placement.server_keys import server_key
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import from_mib, shards_for
from slurm_plugin.simulate.cluster import PARTITION, SimulatedCluster
from slurm_plugin.simulate.engine import Engine
from slurm_plugin.simulate.gpus.interference import Load
from slurm_plugin.simulate.metrics import metrics
from slurm_plugin.simulate.progress import SimulatedJob
from slurm_plugin.simulate.result import Result
from slurm_plugin.simulate.traces.job import TraceJob
from slurm_plugin.simulate.traces.users import FIRST_USER_ID
from slurm_plugin.simulate.traces.workloads import measured
from slurm_plugin.slurm.versions import NEWEST, Version, parse_version, requeue_delay_s

MAKESPAN, COMPLETION, CRASHES = 0.10, 0.15, 1
"""How far a simulation may be from the replay: shares of it, and a count."""
DRAWS = 21
BACKFILL_S = 2.0
"""bf_interval of the replay's Slurm (lab/config.py)."""
AUTH_INFO = "cred_expire=15"
"""Of the replay's Slurm (lab/config.py)."""
LONGEST_PACE = 4.0
"""What took so many times the median between two jobs of a GPU was not Slurm's pace: of 179, 11 took 1.5 to 18 s."""
LOOKS_BACK_S = 0.5
"""A sample covers the time before it (bench/replay/watch.py)."""
LEAST_SAMPLES = 3
FAILED_S = 2.1
"""What a job takes that fails as it starts: until the next one starts, mean of six in three runs, less Slurm's pace."""
ENDED_BADLY = ("oom", "killed")
ESTIMATE = re.compile(r"\bestimate_mib=(\d+)")
ONE_BY_ONE = "copies"
"""How GPUs of a job handed their gradients over in runs that do not say it (bench/replay/options.py)."""
WITHOUT_MPS = "hand"
"""Shards by hand: jobs that share a GPU take turns."""
WITHOUT_RAD = ("whole", WITHOUT_MPS, "hand-mps")
FIGURES = ("makespan_s", "mean_completion_s", "median_slowdown", "p95_slowdown", "energy_j")

Run = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Alone:
    """What a job took with GPUs of its own.

    Attributes:
        start_up_s: To its first step.
        work_s: From there to its end.
        smact: Mean SM activity of these GPUs meanwhile; None where the time was too short.
    """

    start_up_s: float
    work_s: float
    smact: float | None = None


def alone(job: Mapping[str, Any], samples: Mapping[str, Any]) -> Alone | None:
    """Return what a job's last run took; None if it failed as it started.

    Args:
        job: Of a run with whole GPUs.
        samples: Of the same run.
    """
    last = job["runs"][-1] if job["runs"] else {}
    if "trains_s" not in last:
        return None
    return Alone(
        last["trains_s"] - last["called_s"],
        last["end_s"] - last["trains_s"],
        _smact(samples, last["gpus"].split(","), last["trains_s"], last["end_s"]),
    )


def _smact(samples: Mapping[str, Any], gpus: Sequence[str], since_s: float, until_s: float) -> float | None:
    """Return the mean SM activity of GPUs within a time; None of too few samples, which look back each.

    Args:
        samples: Of a run without RAD, whose jobs see their GPUs by index.
        gpus: Their indices.
        since_s: The time's beginning.
        until_s: Its end.
    """
    seen = [
        smact
        for device in samples["gpus"]
        if str(device["index"]) in gpus
        for time_s, smact in zip(samples["times_s"], device["smact"], strict=True)
        if since_s + LOOKS_BACK_S < time_s < until_s and smact is not None
    ]
    return statistics.fmean(seen) if len(seen) >= LEAST_SAMPLES * len(gpus) else None


def paces_s(run: Run) -> list[float]:
    """Return what Slurm took from each job's end to the next one's start on its GPU; 0 of no run."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for job in run["jobs"]:
        for one in job["runs"]:
            if "end_s" in one:
                for gpu in one["gpus"].split(","):
                    spans.setdefault(gpu, []).append((one["called_s"], one["end_s"]))
    waits = [
        later[0] - earlier[1] for taken in map(sorted, spans.values()) for earlier, later in pairwise(taken)
    ]
    # A GPU that was empty for longer was kept for a job of two GPUs.
    longest_s = LONGEST_PACE * statistics.median(waits or [0.0])
    return [wait for wait in waits if wait <= longest_s] or [0.0]


def release(run: Run) -> Version:
    """Return the release of the Slurm that a run was made with."""
    try:
        return parse_version(run["machine"]["slurm"])
    except SlurmError:
        return NEWEST


def simulated(run: Run, whole: Run, draw: int = 0) -> Result:
    """Return a replay as the simulation has it.

    Args:
        run: A replay's result.
        whole: The replay with whole GPUs that it is compared with.
        draw: Which of many draws of Slurm's pace is taken.
    """
    devices = run["samples"]["gpus"]
    usable_mib = min(device["usable_mib"] for device in devices)
    managed = run["policy"] not in WITHOUT_RAD
    settings = PartitionConfig(
        collocate=True, gpu_memory_mib=usable_mib, shards_per_gpu=shards_of(usable_mib)
    )
    if managed:
        recovery = run["settings"].get("recovery", '"exclusive"').strip('"')
        settings = replace(settings, policy=run["policy"], recovery=recovery)
    cluster = SimulatedCluster(
        nodes=1,
        per_node=len(devices),
        memory_bytes=from_mib(usable_mib),
        config=Config(partitions={PARTITION: settings}, default_partition=PARTITION),
        pin="bound",
        managed=managed,
        backfill_s=BACKFILL_S,
        slurm=release(run),
        requeue_s=requeue_delay_s(release(run), AUTH_INFO),
        began_s=run["began_s"],
        min_age_reserve_s=run.get("min_age_reserve_s", 0),
    )
    took = {job["name"]: alone(job, whole["samples"]) for job in whole["jobs"]}
    paces, drawn = paces_s(whole), random.Random(draw)
    jobs = [
        _job(n, row, took.get(row["name"]), drawn.choice(paces), settings)
        for n, row in enumerate(run["jobs"])
    ]
    for job in jobs:
        if run.get("exchange", ONE_BY_ONE) != ONE_BY_ONE:
            job.load = replace(job.load, exchanges_per_s=0.0)
        if run["policy"] == WITHOUT_MPS:
            job.load = replace(job.load, sliced=True)
        scope = run["settings"].get("mps_server", '"user"').strip('"') if managed else "user"
        key = server_key(scope, user_id=job.user_id, account="", job_id=job.trace.number)
        job.load = replace(job.load, server=key)
    return Engine(cluster, sorted(jobs, key=lambda job: job.trace.submit_s)).run()


@dataclass(frozen=True, slots=True)
class Cut:
    """What was reached when a run was cut off: jobs done, and the mean completion of those done in the replay."""

    done: int
    completion_s: float


def at_cut(run: Run, found: Result) -> tuple[float, Cut, Cut]:
    """Return when a run was cut off, and what was reached there: replayed, simulated."""
    cut_s = run["samples"]["times_s"][-1]
    ends_s = {job.number: job.end_s for job in found.jobs if job.end_s is not None}
    done = {
        number: row["runs"][-1]["end_s"]
        for number, row in enumerate(run["jobs"])
        if row["runs"] and row["runs"][-1]["outcome"] == "ok" and number in ends_s
    }
    came_s = {number: run["jobs"][number]["planned_submit_s"] for number in done}
    return (
        cut_s,
        Cut(len(done), statistics.fmean(done[number] - came_s[number] for number in done)),
        Cut(
            sum(end_s <= cut_s for end_s in ends_s.values()),
            statistics.fmean(ends_s[number] - came_s[number] for number in done),
        ),
    )


def _job(
    number: int, row: Mapping[str, Any], took: Alone | None, pace: float, settings: PartitionConfig
) -> SimulatedJob:
    took = took or Alone(0.0, FAILED_S)
    peak_bytes = from_mib(row["peak_mib"] or row["memory_mib"])
    trace = TraceJob(
        number=number,
        submit_s=row["planned_submit_s"],
        workload=row["workload"],
        gpus=row["gpus"],
        duration_s=took.work_s,
        limit_s=60.0 * row["limit_min"],
        memory_bytes=peak_bytes,
    )
    booked_bytes, reported_bytes = from_mib(row["booked_mib"]), _reported_too_little(row, settings)
    if reported_bytes:
        booked_bytes = max(reported_bytes, compute_shards(1, None, settings) * settings.shard_bytes)
    shared = 0 < booked_bytes < settings.shards * settings.shard_bytes
    reported = ESTIMATE.search(row["admin_comment"])
    estimate_bytes = from_mib(int(reported.group(1))) if reported else peak_bytes
    return SimulatedJob(
        trace=trace,
        load=_load(row, took),
        peak_bytes=peak_bytes,
        limit_s=60.0 * row["limit_min"],
        gpus=row["gpus"],
        start_up_s=pace + took.start_up_s,
        slotted=False,
        booking=_booking(reported_bytes or booked_bytes, estimate_bytes, row["gpus"]) if shared else None,
        shards=booked_bytes // settings.shard_bytes if shared else settings.shards,
        eligible_s=trace.submit_s,
        queued_s=trace.submit_s,
        left_s=trace.duration_s,
        priority=row.get("priority", 0),
        user_id=FIRST_USER_ID - 1 + row.get("user", 1),
    )


def by_time(run: Run) -> Run:
    """Return a run whose jobs of several GPUs book what today they would, as nothing said for how long kernels run."""
    usable_mib = min(device["usable_mib"] for device in run["samples"]["gpus"])
    settings = PartitionConfig(gpu_memory_mib=usable_mib, shards_per_gpu=shards_of(usable_mib))
    least_mib = compute_shards(1, None, settings, turns=True) * settings.shard_mib
    jobs = [
        job | {"booked_mib": max(job["booked_mib"], least_mib)}
        if job["gpus"] > 1 and 0 < job["booked_mib"] < usable_mib - settings.shard_mib
        else job
        for job in run["jobs"]
    ]
    return {**run, "jobs": jobs}


def _reported_too_little(row: Mapping[str, Any], settings: PartitionConfig) -> int:
    """Return what a job booked that then ran out of memory, by what its user said; 0 of one that did not."""
    reported = ESTIMATE.search(row["admin_comment"])
    if reported is None or all(one["outcome"] not in ENDED_BADLY for one in row["runs"][:-1]):
        return 0
    return shards_for(from_mib(int(reported.group(1))), settings.shard_bytes) * settings.shard_bytes


def _load(row: Mapping[str, Any], took: Alone) -> Load:
    """Return what a job did to its GPUs; of several by today's table, for the first replays were planned without it.

    The table is an H200's. Where the run with whole GPUs shows how active the job kept its GPU, its kernels take as
    much of the time as makes that; their intensity is the table's.
    """
    table = measured().get(row["workload"])
    if table is None:
        duty = min(1.0, row["steps"] * row["step_s"] / took.work_s)
        return _as_active(Load(smact=row["smact"], busy=row["busy"], duty=duty), took)
    if table.gpus != row["gpus"]:
        table = replace(table, smact=row["smact"], busy=row["busy"], step_s=row["step_s"])
    duty = min(1.0, row["steps"] * table.step_s / took.work_s)
    return _as_active(table.alone(gpus=row["gpus"], duty=duty), took)


def _as_active(load: Load, took: Alone) -> Load:
    return load if took.smact is None else replace(load, duty=min(1.0, took.smact / load.smact))


def _booking(booked_bytes: int, estimate_bytes: int, gpus: int) -> Booking:
    """Return what a shared job booked: its shards, of which less may be memory where compute counts."""
    memory_bytes = min(booked_bytes, max(2 * estimate_bytes, from_mib(1024)))
    return Booking(
        kind="shared",
        gpus=gpus,
        memory_bytes=memory_bytes,
        estimate_bytes=min(estimate_bytes, memory_bytes),
    )


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument(
        "--by-time",
        action="store_true",
        help="jobs of several GPUs that shared them book what they would today: by time",
    )
    options = parser.parse_args()
    runs = [run for run in map(run_record, options.runs) if not run.get("faulty")]
    if options.by_time:
        runs = [by_time(run) for run in runs]
    off = report([run for run in runs if not run["cut"]])
    return off | report_cut([run for run in runs if run["cut"]], runs)


def report(runs: Sequence[Run]) -> int:
    """Print a row for each run: replayed and simulated; return 1 if any is too far off."""
    off = False
    print(f"| run | | {' | '.join(FIGURES)} | crashes | near |")
    print(f"|---|---|{'---|' * (len(FIGURES) + 2)}")
    for run in runs:
        whole = _whole(run, runs)
        if whole is None:
            print(f"{_name(run)}: there is no run with whole GPUs to compare with", file=sys.stderr)
            off = True
            continue
        real = dict(run["figures"])
        draws = [metrics(simulated(run, whole, draw)) for draw in range(DRAWS)]
        found = {name: statistics.median(each[name] for each in draws) for name in (*FIGURES, "crashes")}
        real["crashes"] = max(
            real["crashes"], real["recoveries"]
        )  # some end by a signal, and run again all the same
        near = (
            abs(found["makespan_s"] / real["makespan_s"] - 1) <= MAKESPAN
            and abs(found["mean_completion_s"] / real["mean_completion_s"] - 1) <= COMPLETION
            and abs(found["crashes"] - real["crashes"]) <= CRASHES
        )
        off |= not near
        for name, figures, diagnosis in (
            ("replayed", real, ""),
            ("simulated", found, "yes" if near else "no"),
        ):
            cells = " | ".join(f"{figures[figure]:,.4g}" for figure in FIGURES)
            print(f"| {_name(run)} | {name} | {cells} | {figures['crashes']} | {diagnosis} |")
    return int(off)


def report_cut(cut: Sequence[Run], runs: Sequence[Run]) -> int:
    """Print a row for each run that was cut off; return 1 if any is too far off.

    Args:
        cut: The runs that were cut off.
        runs: All runs, those with whole GPUs among them.
    """
    off = False
    if cut:
        print("\n| cut off | at (s) | jobs done | simulated | their mean completion (s) | simulated | near |")
        print("|---|---|---|---|---|---|---|")
    for run in cut:
        whole = _whole(run, runs)
        if whole is None:
            print(f"{_name(run)}: there is no run with whole GPUs to compare with", file=sys.stderr)
            off = True
            continue
        draws = [at_cut(run, simulated(run, whole, draw)) for draw in range(DRAWS)]
        cut_s, real, _ = draws[0]
        found = Cut(
            done=round(statistics.median(each.done for _, _, each in draws)),
            completion_s=statistics.median(each.completion_s for _, _, each in draws),
        )
        near = (
            abs(found.done / real.done - 1) <= MAKESPAN
            and abs(found.completion_s / real.completion_s - 1) <= COMPLETION
        )
        off |= not near
        print(
            f"| {_name(run)} | {cut_s:.0f} | {real.done} | {found.done} | {real.completion_s:.1f} | "
            f"{found.completion_s:.1f} | {'yes' if near else 'no'} |"
        )
    return int(off)


def _whole(run: Run, runs: Sequence[Run]) -> Run | None:
    """Return the run with whole GPUs that is nearest in time, of what a run may be compared with."""
    alike = [one for one in runs if one["policy"] == "whole" and not one["cut"] and _of(one) == _of(run)]
    return min(alike, key=lambda one: abs(one["began_s"] - run["began_s"]), default=None)


def _of(run: Run) -> tuple[Any, ...]:
    """Return what runs have in common that are compared."""
    return (
        *(run[name] for name in ("trace", "compress", "first", "stand_in")),
        tuple(device["name"] for device in run["samples"]["gpus"]),
        run.get("exchange", ONE_BY_ONE),
        release(run),
    )


def _name(run: Run) -> str:
    settings = "".join(f" {name}={value}" for name, value in run["settings"].items())
    users = f" users={run['users']} seed={run['seed']}" if run.get("users", 1) > 1 else ""
    return f"{run['trace']} {run['policy']}{settings}{users} r{run['repetition']}"


if __name__ == "__main__":
    sys.exit(main())
