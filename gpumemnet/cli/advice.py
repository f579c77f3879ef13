"""Advice: the largest batch that fits; a comparison of settings or GPUs. Each row is a separate estimate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpumemnet.cli import answer
from gpumemnet.cli.cluster import ConfiguredCluster, HypotheticalJob
from gpumemnet.cli.reported import Booked
from gpumemnet.directives.parse import Directives
from gpumemnet.errors import GpuMemNetError
from gpumemnet.gpus import Gpu, gpus
from gpumemnet.names import Precision
from gpumemnet.training import TrainingSetup
from gpumemnet.units import to_mib_nearest, to_mib_up

MOST_BATCH = 1 << 24
PARTS = (1.0, 0.5, 0.25)
"""Parts of a GPU."""
_BATCHES = (0.25, 0.5, 1.0, 2.0, 4.0)
_PRECISIONS = (Precision.FP32, Precision.AMP, Precision.BF16)
"""tf32 uses the same memory as fp32."""

Row = dict[str, Any]
"""Values by heading; None is unknown, or does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Model, GPU and estimator of the advice.

    Attributes:
        directives: Model and settings.
        gpu_model: Type of GPU.
        usable_bytes: Its usable memory.
        estimator: Name of the estimator.
        shards: Number of its shards; 0 where no cluster says so.
        shard_bytes: Size of one shard; 0 likewise.
    """

    directives: Directives
    gpu_model: Gpu
    usable_bytes: int
    estimator: str
    shards: int = 0
    shard_bytes: int = 0

    def part_bytes(self, part: float) -> int:
        """Return the memory of a part of the GPU: whole shards of it, as jobs book them.

        Args:
            part: The part, 1 for all of it.
        """
        if part == 1 or not self.shards:
            return int(part * self.usable_bytes)
        return int(part * self.shards) * self.shard_bytes

    def booked(self, setup: TrainingSetup) -> tuple[int, Booked]:
        """Return the estimate and its booking.

        Raises:
            GpuMemNetError: The model cannot be estimated with that setup.
        """
        model = self.directives.model or ""
        result, _ = answer.for_summary(model, setup, gpu=self.gpu_model, estimator=self.estimator)
        return result.estimate_bytes, Booked.of(result, self.directives.confidence)


def largest(subject: Subject, sizes: Sequence[int] = (1, MOST_BATCH)) -> list[Row]:
    """Return the largest batch for the GPU and for parts of it.

    Args:
        subject: The model.
        sizes: Batch sizes of which the first and the last limit the search.

    Raises:
        GpuMemNetError: The model cannot be estimated with any batch size.
    """
    known: dict[int, int] = {}

    def booked_bytes(batch_size: int) -> int:
        if batch_size not in known:
            setup = subject.directives.setup
            changed = replace(setup, batch_size=batch_size, stated=setup.stated | {"batch_size"})
            known[batch_size] = subject.booked(changed)[1].n_bytes
        return known[batch_size]

    rows: list[Row] = []
    for part in PARTS:
        limit_bytes = subject.part_bytes(part)
        batch_size = _largest(booked_bytes, limit_bytes, sizes[0], sizes[-1])
        booked = None if batch_size is None else to_mib_up(booked_bytes(batch_size))
        part_name = "whole GPU" if part == 1 else f"{part:g} of it"
        rows.append(
            {
                "part": part_name,
                "has_mib": to_mib_nearest(limit_bytes),
                "batch_size": batch_size,
                "booked_mib": booked,
            }
        )
    return rows


def _largest(booked_bytes: Callable[[int], int], limit_bytes: int, least: int, most: int) -> int | None:
    """Return the largest batch size whose booking fits; None if not even the least fits.

    Memory rises with the batch size except for small steps of workspaces; the result fits, and the next size does not.
    """
    if booked_bytes(least) > limit_bytes:
        return None
    fits = least
    while fits < most and booked_bytes(min(2 * fits, most)) <= limit_bytes:
        fits = min(2 * fits, most)
    above = min(2 * fits, most + 1)
    while above - fits > 1:
        middle = (fits + above) // 2
        if booked_bytes(middle) <= limit_bytes:
            fits = middle
        else:
            above = middle
    return fits


def around(batch_size: int) -> list[int]:
    """Return the batch sizes that a sweep compares."""
    return sorted({max(1, round(factor * batch_size)) for factor in _BATCHES})


def sweep_sizes(subject: Subject, sizes: Sequence[int]) -> list[Row]:
    """Compare batch sizes of a trace, which is of one precision.

    Args:
        subject: The model.
        sizes: Its batch sizes.
    """
    rows: list[Row] = []
    for each in sizes:
        setup = replace(subject.directives.setup, batch_size=each)
        rows.append({"batch_size": each} | _needs(subject, setup))
    return rows


def sweep(subject: Subject, batch_size: int) -> list[Row]:
    """Compare batch sizes, precisions and checkpointing.

    Args:
        subject: The model.
        batch_size: The middle batch size.
    """
    rows: list[Row] = []
    for each in around(batch_size):
        for precision in _PRECISIONS:
            for checkpointing in (False, True):
                setup = replace(
                    subject.directives.setup,
                    batch_size=each,
                    precision=precision,
                    gradient_checkpointing=checkpointing,
                    stated=subject.directives.setup.stated
                    | {"batch_size", "precision", "gradient_checkpointing"},
                )
                row: Row = {
                    "batch_size": each,
                    "precision": precision.value,
                    "checkpointing": "yes" if checkpointing else "no",
                }
                rows.append(row | _needs(subject, setup))
    return rows


def compare(
    subject: Subject, cluster: ConfiguredCluster | None, job: HypotheticalJob | None, *, ask: bool
) -> list[Row]:
    """Compare GPUs: those of a cluster's shared partitions, or all known types.

    Args:
        subject: The model.
        cluster: The cluster; None for all known GPU types.
        job: The job to submit there.
        ask: Whether to ask Slurm for the job's expected start.
    """
    if cluster is None or job is None:
        return [
            {
                "gpu": gpu_model.name,
                **_needs(
                    replace(subject, gpu_model=gpu_model, usable_bytes=gpu_model.memory_bytes),
                    subject.directives.setup,
                ),
            }
            for gpu_model in gpus().values()
        ]
    rows: list[Row] = []
    for place in cluster.places:
        there = job._replace(typed=(*job.typed, f"--partition={place.partition}"))
        submitted = cluster.submit(there)
        row: Row = {"partition": place.partition, "gpu": place.gpu}
        subject_there = replace(
            subject,
            gpu_model=cluster.gpu_model,
            usable_bytes=place.usable_bytes,
            shards=place.shards,
            shard_bytes=place.shard_bytes,
        )
        row |= _needs(subject_there, subject.directives.setup)
        row["asks"] = None if submitted.refusal else submitted.gres
        if ask:
            row["starts"] = cluster.ask(there).starts
        rows.append(row)
    return rows


def _needs(subject: Subject, setup: TrainingSetup) -> Row:
    row: Row = {
        "has_mib": to_mib_nearest(subject.usable_bytes),
        "needs_mib": None,
        "booked_mib": None,
        "fit": None,
    }
    try:
        estimate_bytes, booked = subject.booked(setup)
    except GpuMemNetError:
        return row  # a saved profile is valid for its own settings only
    return row | {
        "needs_mib": to_mib_nearest(estimate_bytes),
        "booked_mib": to_mib_up(booked.n_bytes),
        "fit": _fit(subject, booked.n_bytes),
    }


def _fit(subject: Subject, booked_bytes: int) -> int:
    """Return how many such jobs fit on a GPU: by whole shards where a cluster has them."""
    if not subject.shards:
        return subject.usable_bytes // booked_bytes
    each = -(-booked_bytes // subject.shard_bytes)
    return max(subject.shards // each, min(1, subject.usable_bytes // booked_bytes))
