"""Queue positions of jobs, from squeue."""

from __future__ import annotations

from slurm_plugin.slurm.control import Standing
from slurm_plugin.slurm.names import TASK_COLUMNS
from slurm_plugin.slurm.queries.columns import Columns, Row, known, number
from slurm_plugin.slurm.queries.printed import seconds_of

STANDING_COLUMNS: Columns = (
    ("JobID", 20),
    ("UserID", 12),
    ("State", 24),
    ("RestartCnt", 8),
    ("PriorityLong", 16),
    ("Nice", 16),
    ("SubmitTime", 24),
    ("AccrueTime", 24),
    ("Partition", 256),
    ("Reason", 128),
)
ONE_STANDING_COLUMNS: Columns = (
    *TASK_COLUMNS,
    *STANDING_COLUMNS[2:],
    ("admin_comment", 1100),
)
"""Requested for one job only."""


def standing(row: Row) -> Standing:
    """Return the queue position of the job in a record.

    Raises:
        ValueError: A number in it is invalid.
    """
    submitted_s, accrues_s = seconds_of(row["SubmitTime"]), seconds_of(row["AccrueTime"])
    return Standing(
        job_id=number(row["JobID"]),
        user_id=number(row["UserID"]),
        state=row["State"],
        reason=known(row["Reason"]),
        partition=row["Partition"],
        priority=number(row["PriorityLong"]),
        nice=number(row["Nice"]),
        restarts=number(row["RestartCnt"]),
        submitted_s=int(submitted_s or 0),
        accrues_s=None if accrues_s is None else int(accrues_s),
        admin_comment=known(row.get("admin_comment", "")),
    )
