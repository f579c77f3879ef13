"""Times, nodes and comment of one job, waiting, running or ended: from squeue while it knows the job, then sacct."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.queries.accounting import sacct
from slurm_plugin.slurm.queries.columns import Columns, Row, cut, known, number
from slurm_plugin.slurm.queries.printed import seconds_of

_SQUEUE: Columns = (
    ("JobID", 20),
    ("UserID", 12),
    ("State", 24),
    ("SubmitTime", 24),
    ("StartTime", 24),
    ("EndTime", 24),
    ("RestartCnt", 8),
    ("Partition", 256),
    ("NodeList", 256),
    ("tres-per-node", 256),
    ("tres-per-job", 256),
    ("tres-per-task", 256),
    ("admin_comment", 1100),
    ("Comment", 1100),
)
_SACCT: Columns = (
    ("JobIDRaw", 20),
    ("UID", 12),
    ("State", 24),
    ("Submit", 24),
    ("Start", 24),
    ("End", 24),
    ("Partition", 64),
    ("NodeList", 256),
    ("ReqTRES", 256),
    ("AdminComment", 1100),
    ("Comment", 1100),
)
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """One job as reported by Slurm.

    Attributes:
        job_id: Slurm's job id.
        user_id: The job's user.
        state: "PENDING", "RUNNING", "COMPLETED", ...
        partition: Partition name.
        nodes: Where it runs or ran, in Slurm's format for lists of nodes; "" if nowhere yet.
        requested: Its request, as Slurm writes it.
        comment: The job's comment, "" if the accounting does not keep it.
        admin_comment: Its AdminComment, "" if it has none.
        restarts: How often it was requeued; None if the accounting does not report it.
        submit_s: When it was submitted, or requeued; seconds since the epoch. None if unknown, like the next two.
        start_s: When its last run started; Slurm's prediction while it waits.
        end_s: When it ended, or will at the latest.
    """

    job_id: int
    user_id: int
    state: str
    partition: str
    nodes: str
    requested: str
    comment: str
    admin_comment: str = ""
    restarts: int | None
    submit_s: float | None
    start_s: float | None
    end_s: float | None


def job_times(job_id: int, *, slurm_conf: str = "", accounts: bool) -> JobTimes | None:
    """Return a job; None if Slurm no longer knows it.

    Args:
        job_id: Slurm's job id.
        slurm_conf: Path for SLURM_CONF; "" lets the commands find it.
        accounts: Whether there is slurmdbd to ask about jobs that slurmctld forgot.

    Raises:
        SlurmError: A command failed or did not answer.
    """
    slurm = SlurmCommands(slurm_conf=slurm_conf, timeout_s=_ANSWER_S)
    found = _of_squeue(slurm.squeue(_SQUEUE, "-t", "all", "-j", str(job_id)), job_id)
    if found is not None or not accounts:
        return found
    return parse_sacct(sacct(_SACCT, "-j", str(job_id), slurm_conf=slurm_conf, timeout_s=_ANSWER_S), job_id)


def _of_squeue(rows: Iterable[Row], job_id: int) -> JobTimes | None:
    return next((_times(row) for row in rows if row["JobID"] == str(job_id)), None)


def parse_sacct(content: bytes, job_id: int) -> JobTimes | None:
    """Return the job of this id that sacct printed, its last run, or None.

    Args:
        content: Output of sacct.
        job_id: The job.

    Raises:
        SlurmError: The output does not match these columns.
    """
    rows = [row for row in cut(content, _SACCT, gap=1) if row["JobIDRaw"] == str(job_id)]
    names = {
        "UID": "UserID",
        "Submit": "SubmitTime",
        "Start": "StartTime",
        "End": "EndTime",
        "ReqTRES": "tres-per-node",
        "AdminComment": "admin_comment",
    }
    return _times({names.get(name, name): value for name, value in rows[-1].items()}) if rows else None


def _times(row: Row) -> JobTimes:
    requested = (row.get(f"tres-per-{unit}", "") for unit in ("node", "job", "task"))
    try:
        return JobTimes(
            job_id=number(row.get("JobID") or row["JobIDRaw"]),
            user_id=number(row["UserID"]),
            state=row["State"].partition(" ")[0],
            partition=row["Partition"],
            nodes=known(row["NodeList"]),
            requested=",".join(filter(None, map(known, requested))),
            comment=known(row["Comment"]),
            admin_comment=known(row["admin_comment"]),
            restarts=number(row["RestartCnt"]) if "RestartCnt" in row else None,
            submit_s=seconds_of(row["SubmitTime"]),
            start_s=seconds_of(row["StartTime"]),
            end_s=seconds_of(row["EndTime"]),
        )
    except ValueError as exc:
        raise SlurmError(f"Slurm printed an invalid job: {exc}") from exc
