"""Slurm's accounting of finished jobs: only the database can still change these, not the controller.

`scontrol update` answers "Job has already finished" from the moment a job is COMPLETING (22.05 to 26.05), so the
Epilog writes its findings to slurmdbd (sacctmgr(1), "modify job"), and radd reads them there (sacct(1)).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.errors import CommandError, SlurmError
from slurm_plugin.core.process.run import run_bytes, spawn_daemon
from slurm_plugin.slurm.environment import slurm_environment
from slurm_plugin.slurm.queries.columns import Columns, Row, number, records

_ENDED: Columns = (("JobIDRaw", 20), ("UID", 12), ("AdminComment", 240))
_COMMENT: Columns = (("JobIDRaw", 20), ("Comment", 1100))  # Slurm keeps at most 1,024 characters
_TIMEOUT_S = 10.0


def write_admin_comment(job_id: int, text: str, *, slurm_conf: Path | None, log_path: Path) -> None:
    """Start sacctmgr and return at once: a hook blocks its node while it runs, and nothing waits for this.

    Args:
        job_id: The job.
        text: Its new AdminComment.
        slurm_conf: Path for SLURM_CONF; None lets sacctmgr find it.
        log_path: File for its error messages.

    Raises:
        SlurmError: sacctmgr could not be started.
    """
    argv = ["sacctmgr", "-iQ", "modify", "job", "where", f"jobid={job_id}", "set", f"AdminComment={text}"]
    try:
        spawn_daemon(argv, env=slurm_environment(slurm_conf), log_path=log_path, uid=0, gid=0)
    except (CommandError, OSError) as exc:
        raise SlurmError(f"job {job_id}: AdminComment not written: {exc}") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job that completed.

    Attributes:
        job_id: Slurm's job id.
        user_id: The job's user.
        admin_comment: Its AdminComment; "" if it has 240 bytes or more: a note about an end is shorter.
    """

    job_id: int
    user_id: int
    admin_comment: str


class Accounts:
    """The database of finished jobs, through sacct.

    Args:
        slurm_conf: Path for SLURM_CONF; None lets sacct find it.
    """

    def __init__(self, slurm_conf: Path | None) -> None:
        self._slurm_conf = slurm_conf

    def completed(self, last_s: int) -> tuple[EndedJob, ...]:
        """Return the jobs that completed in the last `last_s` seconds.

        Raises:
            SlurmError: sacct failed.
        """
        return parse_ended(self._sacct(_ENDED, "-a", "-s", "CD", "-S", f"now-{last_s}seconds", "-E", "now"))

    def comments(self, job_ids: Iterable[int]) -> dict[int, str]:
        """Return the comments of jobs; empty without `AccountingStoreFlags=job_comment` in slurm.conf.

        Raises:
            SlurmError: sacct failed.
        """
        ids = ",".join(map(str, job_ids))
        return parse_comments(self._sacct(_COMMENT, "-j", ids)) if ids else {}

    def _sacct(self, columns: Columns, *which: str) -> bytes:
        return sacct(columns, *which, slurm_conf=self._slurm_conf, timeout_s=_TIMEOUT_S)


def sacct(columns: Columns, *which: str, slurm_conf: Path | str | None, timeout_s: float) -> bytes:
    """Return sacct's table of jobs, without their steps, for columns.py with a gap of 1.

    Args:
        columns: Names and widths.
        which: Options that select the jobs.
        slurm_conf: Path for SLURM_CONF; None or "" lets sacct find it.
        timeout_s: After this long it is stopped.

    Raises:
        SlurmError: It failed or did not answer.
    """
    form = ",".join(f"{name}%-{width}" for name, width in columns)
    try:
        return run_bytes(
            ["sacct", "-X", "-n", *which, "-o", form], timeout_s=timeout_s, env=slurm_environment(slurm_conf)
        )
    except CommandError as exc:
        raise SlurmError(str(exc)) from exc


def parse_ended(content: bytes) -> tuple[EndedJob, ...]:
    """Return the jobs that sacct printed.

    Raises:
        SlurmError: The output does not match these columns.
    """
    return records(content, _ENDED, _ended, gap=1)


def _ended(row: Row) -> EndedJob:
    note = row["AdminComment"]
    whole = (
        len(note.encode(errors="replace")) < dict(_ENDED)["AdminComment"]
    )  # sacct truncates a value that fills its column
    return EndedJob(
        job_id=number(row["JobIDRaw"]), user_id=number(row["UID"]), admin_comment=note if whole else ""
    )


def parse_comments(content: bytes) -> dict[int, str]:
    """Return the comments that sacct printed, by job id.

    Raises:
        SlurmError: The output does not match these columns.
    """
    return dict(records(content, _COMMENT, lambda row: (number(row["JobIDRaw"]), row["Comment"]), gap=1))
