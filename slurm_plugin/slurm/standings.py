"""Where jobs stand in the queue, as squeue prints it."""

from __future__ import annotations

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.columns import Columns, cut, known
from slurm_plugin.slurm.control import Standing
from slurm_plugin.slurm.printed import seconds_of

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
ADMIN_COMMENT = ("admin_comment", 1100)
"""Asked of one job alone."""


def parse_standings(text: str, columns: Columns) -> tuple[Standing, ...]:
    """Return the jobs that squeue printed in these columns.

    Args:
        text: What squeue printed.
        columns: Name and width of each column.

    Raises:
        SlurmError: The output is not what these columns give.
    """
    return tuple(_standing(row) for row in cut(text, columns))


def _standing(row: dict[str, str]) -> Standing:
    submitted_s, accrues_s = seconds_of(row["SubmitTime"]), seconds_of(row["AccrueTime"])
    try:
        return Standing(
            job_id=int(row["JobID"]),
            user_id=int(row["UserID"]),
            state=row["State"],
            reason=known(row["Reason"]),
            partition=row["Partition"],
            priority=int(row["PriorityLong"]),
            nice=int(row["Nice"]),
            restarts=int(row["RestartCnt"]),
            submitted_s=int(submitted_s or 0),
            accrues_s=None if accrues_s is None else int(accrues_s),
            admin_comment=known(row.get("admin_comment", "")),
        )
    except ValueError as exc:
        raise SlurmError(f"squeue printed what is no job: {exc}") from exc
