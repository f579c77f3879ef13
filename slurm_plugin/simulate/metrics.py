"""Figures of a run, in the terms of thesis section 6.3.4."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from slurm_plugin.simulate.gpus.interference import BUSY_W, power_w
from slurm_plugin.simulate.result import Result


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share lies (nearest rank); 0 for an empty list.

    Args:
        values: Any numbers, in any order.
        share: 0 to 1.

    >>> quantile([3.0, 1.0, 2.0], 0.5), quantile([], 0.5)
    (2.0, 0.0)
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def metrics(result: Result) -> dict[str, Any]:
    """Return the figures of a run; times in seconds, from the first submission."""
    done = [job for job in result.jobs if job.end_s is not None and job.first_start_s is not None]
    waiting = [(job.first_start_s or 0.0) - job.trace.submit_s for job in done]
    completion = [(job.end_s or 0.0) - job.trace.submit_s for job in done]
    slowdown = [job.ran_s / (job.start_up_s + job.trace.duration_s) for job in done]
    span_s = max(result.end_s, 1e-9)
    used_s = sum(gpu.used_s for gpu in result.gpus)
    busy_s = sum(gpu.busy_s for gpu in result.gpus)
    return {
        "jobs": len(done),
        "makespan_s": round(result.end_s, 1),
        "mean_completion_s": _mean(completion),
        "p95_completion_s": round(quantile(completion, 0.95), 1),
        "mean_waiting_s": _mean(waiting),
        "p95_waiting_s": round(quantile(waiting, 0.95), 1),
        "mean_waiting_multi_gpu_s": _mean(
            [wait_s for wait_s, job in zip(waiting, done, strict=True) if job.gpus > 1]
        ),
        "mean_execution_s": _mean([job.ran_s for job in done]),
        "median_slowdown": round(quantile(slowdown, 0.5), 3),
        "p95_slowdown": round(quantile(slowdown, 0.95), 3),
        "max_slowdown": round(max(slowdown, default=0.0), 3),
        "crashes": result.crashes,
        "stopped": result.stopped,
        "hurt": result.hurt,
        "recoveries": result.recoveries,
        "failed": result.failed,
        "requeues": result.requeues,
        "over_limit": sum(job.last_run_s > result.limit_factor * job.limit_s for job in done),
        "booked_over_used": (
            round(result.booked_byte_s / result.used_byte_s, 3) if result.used_byte_s else None
        ),
        "gpu_held_s": round(used_s),
        "gpu_held_share": round(used_s / span_s / len(result.gpus), 4),
        "energy_j": round(sum(power_w(0.0) * span_s + BUSY_W * gpu.busy_s for gpu in result.gpus)),
        "gpu_smact_mean": round(busy_s / span_s / len(result.gpus), 4),
    }


def _mean(values: Sequence[float]) -> float:
    return round(statistics.fmean(values), 1) if values else 0.0
