"""Jobs that wait for GPUs, and their waiting times, from squeue's columns of fixed width without any text of a user."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_plugin.core.booking.gres_text import parse_gres
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.queries.columns import Columns, Row, known, number, records
from slurm_plugin.slurm.queries.printed import seconds_of

_COLUMNS: Columns = (
    ("JobID", 20),
    ("UserID", 12),
    ("SubmitTime", 24),
    ("RestartCnt", 8),
    ("PriorityLong", 16),
    ("Partition", 256),
    ("Reason", 128),
    ("tres-per-node", 256),
    ("tres-per-job", 256),
    ("tres-per-socket", 256),
    ("tres-per-task", 256),
)
_OF_GPUS = ("gpu", "shard", "mps")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """One job that waits for GPUs; the tasks of an array that wait count as one.

    Attributes:
        job_id: Slurm's job id.
        user_id: The job's user.
        partition: Partition name, or several.
        gres: Its request, e.g. "gres/shard:12".
        reason: Why it waits.
        priority: Its priority.
        restarts: How often it was requeued.
        submit_s: When it was submitted, seconds since the epoch; None if unknown.
    """

    job_id: int
    user_id: int
    partition: str
    gres: str
    reason: str
    priority: int
    restarts: int
    submit_s: float | None


def waiting_jobs(*, slurm_conf: str = "", timeout_s: float = 5.0) -> tuple[WaitingJob, ...]:
    """Return the jobs that wait for GPUs, as far as the caller may see them (PrivateData).

    Args:
        slurm_conf: Path for SLURM_CONF; "" lets squeue find it.
        timeout_s: After this long squeue is stopped.

    Raises:
        SlurmError: squeue failed or did not answer.
    """
    slurm = SlurmCommands(slurm_conf=slurm_conf, timeout_s=timeout_s)
    return parse_waiting(slurm.columns("squeue", _COLUMNS, "-t", "PD"))


def parse_waiting(content: bytes) -> tuple[WaitingJob, ...]:
    """Return the jobs that squeue printed, those without GPUs left out.

    Raises:
        SlurmError: The output does not match these columns.
    """
    return tuple(job for job in records(content, _COLUMNS, _job) if _wants_gpus(job))


def _job(row: Row) -> WaitingJob:
    requested = (row[f"tres-per-{unit}"] for unit in ("node", "job", "socket", "task"))
    return WaitingJob(
        job_id=number(row["JobID"]),
        user_id=number(row["UserID"]),
        partition=row["Partition"],
        gres=",".join(filter(None, map(known, requested))),
        reason=known(row["Reason"]),
        priority=number(row["PriorityLong"]),
        restarts=number(row["RestartCnt"]),
        submit_s=seconds_of(row["SubmitTime"]),
    )


def _wants_gpus(job: WaitingJob) -> bool:
    return any(item.name in _OF_GPUS for item in parse_gres(job.gres))
