"""Results of a simulation, from which metrics are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_plugin.simulate.gpus.gpu import SimulatedGpu
from slurm_plugin.simulate.progress import SimulatedJob, SimulatedRun


@dataclass(slots=True, kw_only=True)
class Result:
    """Jobs, GPUs and sums over all runs.

    Attributes:
        jobs: All jobs, with their times.
        gpus: All GPUs, with the integrals of their activity.
        limit_factor: Factor by which a job may exceed its limit, which compensates for sharing
            (node/time_extension.py).
        end_s: When the last job ended.
        crashes: Times that a job ran out of GPU memory or was stopped.
        stopped: Times that the guard stopped a job because other jobs needed its memory.
        hurt: Times that a job ended this way although it used no more than it booked.
        recoveries: Times that a job was rerun.
        failed: Jobs that were not rerun.
        requeues: Times that a job was requeued.
        booked_byte_s: Integral of the bookings of shared jobs.
        used_byte_s: Integral of their actual usage.
    """

    jobs: Sequence[SimulatedJob]
    gpus: Sequence[SimulatedGpu]
    limit_factor: float = 1.0
    end_s: float = 0.0
    crashes: int = 0
    stopped: int = 0
    hurt: int = 0
    recoveries: int = 0
    failed: int = 0
    requeues: int = 0
    booked_byte_s: float = 0.0
    used_byte_s: float = 0.0

    def count(self, run: SimulatedRun, now_s: float) -> None:
        """Count a finished run.

        Args:
            run: The run.
            now_s: Seconds since the trace began.
        """
        job, took_s = run.job, now_s - run.start_s
        if not job.whole and job.booking is not None and job.booking.memory_bytes:
            self.booked_byte_s += job.booking.memory_bytes * took_s
            self.used_byte_s += job.peak_bytes * took_s
        job.last_run_s = took_s
        if not run.has_crashed(now_s):
            job.ran_s += took_s
