"""Make the record of a run for the history: its booking, its usage and how it ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slurm_plugin.core.config.load import Config
from slurm_plugin.core.history.runs import Run, peaks_path, record
from slurm_plugin.core.records.node import Outcome
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.monitor.window import JobUsage
from slurm_plugin.slurm.node.hook_env import HookJob

LEAST_SAMPLES = 60
"""A minute of training: the activity of a shorter run is mostly that of its first steps."""


def activity_of(usage: JobUsage | None) -> float | None:
    """Return the SM activity that a run would have had alone; None if it was too short, or never had SMs to spare."""
    if usage is None or usage.own_smact is None or usage.own_samples < LEAST_SAMPLES:
        return None
    return round(usage.own_smact, 3)


def run_of(
    job: HookJob,
    booking: Booking,
    outcome: Outcome,
    usage: JobUsage | None,
    *,
    now_s: float,
) -> Run:
    """Return the record of a run.

    Args:
        job: The job.
        booking: What it booked.
        outcome: How it ended.
        usage: What the monitor saw of it; None if nothing.
        now_s: Seconds since the epoch.
    """
    shows_need = _shows_need(outcome, booking)
    run = Run(
        user_id=job.user_id,
        peak_bytes=outcome.peak_bytes,
        profile_key=booking.profile_key if shows_need else None,
        missed_key=booking.profile_key if _missed_estimate(outcome) else None,
        job_id=job.job_id,
        restart=job.restart,
        time_s=round(now_s, 3),
        partition=job.partition,
        outcome=outcome.kind,
        estimate_bytes=booking.estimate_bytes,
        booked_bytes=booking.memory_bytes,
        cap_bytes=booking.cap_bytes,
        node=job.node or None,
        smact=activity_of(usage) if shows_need else None,
        processes=booking.processes,
    )
    return run if usage is None else _with_usage(run, usage)


def _shows_need(outcome: Outcome, booking: Booking) -> bool:
    """Return whether a run shows what its model needs; one that was cut short does not."""
    return outcome.kind == "ok" and outcome.peak_bytes is not None and booking.profile_key is not None


def _missed_estimate(outcome: Outcome) -> bool:
    """Return whether a run shows that it was estimated too small."""
    return outcome.kind == "overrun" or (outcome.kind == "gpu-oom" and outcome.corroborated)


def _with_usage(run: Run, usage: JobUsage) -> Run:
    return replace(
        run,
        mean_smact=usage.mean_smact,
        p95_smact=usage.p95_smact,
        energy_j=usage.energy_j,
        start_s=usage.first_s,
        gpus=usage.gpus,
    )


def keep_run(config: Config, run: Run) -> None:
    """Record a job's measured need, for radd to learn from and for people to query; sends no requests.

    Args:
        config: rad.toml.
        run: As `run_of` returns it.

    Raises:
        OSError: It cannot be written.
    """
    record(peaks_path(Path(config.paths.state)), run)
