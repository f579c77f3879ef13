"""Records of a trace: jobs and their submission times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job of a trace.

    Attributes:
        number: Its position in the trace.
        submit_s: When it was submitted, from the trace's beginning.
        workload: Name of its training; the same name is the same program.
        gpus: GPUs on one node.
        duration_s: How long it runs alone.
        limit_s: Its time limit; None if the trace has none.
        memory_bytes: Its peak on each GPU; None if not in the trace.
        epochs: Times through its data set; None if not in the trace.
        user: Its user; "" if not in the trace.
        account: Its Slurm account; "" if not in the trace.
    """

    number: int
    submit_s: float
    workload: str
    gpus: int
    duration_s: float
    limit_s: float | None = None
    memory_bytes: int | None = None
    epochs: int | None = None
    user: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrace:
    """The jobs of a file.

    Attributes:
        jobs: In order of submission.
        left_out: Number of rows that are not simulated, by reason.
    """

    jobs: tuple[TraceJob, ...]
    left_out: Mapping[str, int]


def compressed(trace: JobTrace, factor: float) -> JobTrace:
    """Return a trace whose jobs arrive, run and are limited this many times faster, as in a replay on real GPUs.

    A job's load on its GPU stays as it was: its loader is not faster than in the trace.

    Args:
        trace: As it was recorded.
        factor: How many times faster; 1 changes nothing.
    """
    jobs = (
        replace(
            job,
            submit_s=job.submit_s / factor,
            duration_s=job.duration_s / factor,
            limit_s=None if job.limit_s is None else job.limit_s / factor,
        )
        for job in trace.jobs
    )
    return replace(trace, jobs=tuple(jobs))


class Unfit(Exception):
    """A row that is not a job for this simulation; the text says why."""


def as_words(left_out: Mapping[str, int]) -> str:
    """Return as text how many rows are not simulated, and why.

    >>> as_words({"without GPUs": 2, "larger than a GPU": 1})
    '1 larger than a GPU, 2 without GPUs'
    """
    return ", ".join(f"{count} {why}" for why, count in sorted(left_out.items()))
