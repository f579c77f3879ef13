"""Measured tables: the load of each workload on a GPU, and the errors of estimates."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources

from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.simulate.gpus.interference import TYPICAL_KERNEL_S, Load
from slurm_plugin.simulate.traces.job import TraceJob

UNKNOWN = Load(smact=0.39, busy=0.65, duty=1.0)
"""Load of an unknown training: medians of 492 measured ones, and no pause for data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWorkload:
    """A measured training, alone on its H200s.

    Attributes:
        gpus: Number of GPUs; step times apply only to this number.
        step_s: Seconds of one step.
        smact: SM activity during it (0 to 1).
        busy: Share of the time in which any kernel ran.
        kernels: Kernels of one step, from its profile; None without a profile.
        steps_per_epoch: Steps through its data set; None if unknown.
        exchanges: Gradients that its GPUs exchange one by one in a step: its parameters' tensors. 0 on one GPU.
    """

    gpus: int
    step_s: float
    smact: float
    busy: float
    kernels: int | None
    steps_per_epoch: int | None
    exchanges: int = 0

    @property
    def kernel_s(self) -> float:
        """Return the mean duration of one of its kernels."""
        return self.busy * self.step_s / self.kernels if self.kernels else TYPICAL_KERNEL_S

    def load(self, job: TraceJob) -> Load:
        """Return its load as this job: a job that takes longer than its steps waits for data in between."""
        duty = 1.0
        if self.steps_per_epoch and job.epochs:
            duty = min(1.0, job.epochs * self.steps_per_epoch * self.step_s / job.duration_s)
        return self.alone(gpus=job.gpus, duty=duty)

    def alone(self, *, gpus: int, duty: float) -> Load:
        """Return its load alone on its GPUs.

        Args:
            gpus: Number of GPUs.
            duty: Share of its time in which it trains.
        """
        return Load(
            smact=self.smact,
            busy=self.busy,
            duty=duty,
            kernel_s=self.kernel_s,
            halves=gpus > 1,
            exchanges_per_s=self.exchanges / self.step_s if gpus > 1 else 0.0,
        )


def load_of(job: TraceJob, known: Mapping[str, MeasuredWorkload]) -> Load:
    """Return the load of a trace's job on a GPU.

    Args:
        job: A job of a trace.
        known: Measured workloads by name; for others the medians are assumed.
    """
    workload = known.get(job.workload)
    return replace(UNKNOWN, halves=job.gpus > 1) if workload is None else workload.load(job)


def measured() -> Mapping[str, MeasuredWorkload]:
    """Return the measured workloads (docs/measurements/2026-11-activity.md)."""
    return {
        row["workload"]: MeasuredWorkload(
            gpus=int(row["gpus"]),
            step_s=float(row["step_s"]),
            smact=float(row["smact"]),
            busy=float(row["busy"]),
            kernels=int(row["kernels"]) if row["kernels"] else None,
            steps_per_epoch=int(row["steps_per_epoch"]) if row["steps_per_epoch"] else None,
            exchanges=int(row["exchanges"] or 0),
        )
        for row in _rows("workloads.csv")
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredError:
    """Estimates of one program relative to its real peak.

    Attributes:
        estimate: The estimate.
        bound: The bound.
        quantiles: The value that each of `SHARES` of jobs stays below.
    """

    estimate: float
    bound: float
    quantiles: tuple[float, ...]


EXACT = MeasuredError(estimate=1.0, bound=1.0, quantiles=(1.0,) * len(SHARES))


def estimate_errors() -> tuple[MeasuredError, ...]:
    """Return RAD's relative estimates for each held-out run (`bench/estimator/estimate_errors.py`)."""
    return tuple(
        MeasuredError(
            estimate=float(row["estimate"]),
            bound=float(row["bound"]),
            quantiles=tuple(float(row[str(share)]) for share in SHARES),
        )
        for row in _rows("estimate_errors.csv")
    )


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("slurm_plugin.simulate.traces").joinpath(name).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))
