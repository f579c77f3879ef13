"""Who waits for GPUs, and how long by now: squeue's columns of fixed width, without any text of a user."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.gres import parse_gres
from slurm_plugin.slurm.columns import cut, known
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.printed import format_of, seconds_of

_COLUMNS = (
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
        user_id: The owner.
        partition: Partition name, or several.
        gres: What it asks for, e.g. "gres/shard:12".
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
    return parse_waiting(slurm.ask("squeue", "-h", "-t", "PD", "-O", format_of(_COLUMNS)))


def parse_waiting(text: str) -> tuple[WaitingJob, ...]:
    """Return the jobs that squeue printed, those without GPUs left out.

    Raises:
        SlurmError: It is not what these columns give.
    """
    return tuple(job for row in cut(text, _COLUMNS) if _wants_gpus(job := _job(row)))


def _job(row: dict[str, str]) -> WaitingJob:
    asked = (row[f"tres-per-{unit}"] for unit in ("node", "job", "socket", "task"))
    try:
        return WaitingJob(
            job_id=int(row["JobID"]),
            user_id=int(row["UserID"]),
            partition=row["Partition"],
            gres=",".join(filter(None, map(known, asked))),
            reason=known(row["Reason"]),
            priority=int(row["PriorityLong"]),
            restarts=int(row["RestartCnt"]),
            submit_s=seconds_of(row["SubmitTime"]),
        )
    except ValueError as exc:
        raise SlurmError(f"squeue printed what is no job: {exc}") from exc


def _wants_gpus(job: WaitingJob) -> bool:
    return any(item.name in _OF_GPUS for item in parse_gres(job.gres))
