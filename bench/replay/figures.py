"""Calculate the figures of a run as in thesis section 6.3.4, from its jobs and samples alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_plugin.simulate.metrics import quantile


def figures(jobs: Sequence[Mapping[str, Any]], samples: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a run; times in seconds.

    Args:
        jobs: As run.py collects them; times in seconds from the first submission. Those that fault are left out: they
            are not meant to end well.
        samples: As watch.py has them.
    """
    jobs = [job for job in jobs if not job.get("faults")]
    ended = [job for job in jobs if job["runs"] and job["runs"][-1].get("end_s") is not None]
    good = [job for job in ended if job["runs"][-1]["outcome"] == "ok"]
    runs = [run for job in jobs for run in job["runs"]]
    waiting = [job["runs"][0]["called_s"] - job["submit_s"] for job in jobs if job["runs"]]
    completion = [job["runs"][-1]["end_s"] - job["submit_s"] for job in good]
    execution = [job["runs"][-1]["end_s"] - job["runs"][-1]["called_s"] for job in good]
    slowdown = [
        (job["runs"][-1]["end_s"] - job["runs"][-1]["trains_s"]) / max(job["alone_s"], 1e-9) for job in good
    ]
    start_up = [run["trains_s"] - run["called_s"] for run in runs if "trains_s" in run]
    booked = sum(job["booked_mib"] * s for job, s in zip(good, execution, strict=True) if job["booked_mib"])
    used = sum(job["peak_mib"] * s for job, s in zip(good, execution, strict=True) if job["booked_mib"])
    gpus = samples["gpus"]
    return {
        "jobs": len(jobs),
        "ended_well": len(good),
        "makespan_s": _rounded(max((job["runs"][-1]["end_s"] for job in ended), default=0.0)),
        "mean_waiting_s": _mean(waiting),
        "p95_waiting_s": _rounded(quantile(waiting, 0.95)),
        "mean_execution_s": _mean(execution),
        "p95_execution_s": _rounded(quantile(execution, 0.95)),
        "mean_completion_s": _mean(completion),
        "p95_completion_s": _rounded(quantile(completion, 0.95)),
        "median_slowdown": _rounded(quantile(slowdown, 0.5)),
        "p95_slowdown": _rounded(quantile(slowdown, 0.95)),
        "max_slowdown": _rounded(max(slowdown, default=0.0)),
        "mean_start_up_s": _mean(start_up),
        "start_up_share": _rounded(sum(start_up) / sum(execution)) if execution else None,
        "crashes": sum(run["outcome"] == "oom" for run in runs),
        "recoveries": sum(len(job["runs"]) > 1 for job in good),
        "lost_to_crashes_s": _rounded(
            sum(run["end_s"] - run["called_s"] for run in runs if run["outcome"] == "oom")
        ),
        "failed_runs": sum(run["outcome"] == "failed" for run in runs),
        "lost_to_failures_s": _rounded(
            sum(run["end_s"] - run["called_s"] for run in runs if run["outcome"] == "failed")
        ),
        "requeues": sum(max(0, job["restarts"] - max(0, len(job["runs"]) - 1)) for job in jobs),
        "booked_over_used": _rounded(booked / used) if used else None,
        "energy_j": _rounded(sum(gpu["energy_j"] for gpu in gpus)),
        "smact_mean": _over(gpus, "smact"),
        "memory_mean_share": _rounded(
            statistics.fmean(u / gpu["usable_mib"] for gpu in gpus for u in gpu["used_mib"])
        )
        if any(gpu["used_mib"] for gpu in gpus)
        else None,
    }


def _over(gpus: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [value for gpu in gpus for value in gpu[name] if value is not None]
    return _mean(values) if values else None


def _mean(values: Sequence[float]) -> float:
    return _rounded(statistics.fmean(values)) if values else 0.0


def _rounded(value: float) -> float:
    return round(value, 3)
