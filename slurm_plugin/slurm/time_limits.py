"""When Slurm ends a job, and what speaks against a later end.

Slurm takes a longer limit from root without a look at the partition's own or at reservations (seen on 22.05.8), so both
are asked for here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.columns import cut
from slurm_plugin.slurm.commands import UNKNOWN_JOB, SlurmCommands
from slurm_plugin.slurm.printed import format_of, seconds_of

_COLUMNS = (("JobID", 20), ("State", 24), ("TimeLimit", 24), ("EndTime", 24), ("Partition", 256))
_PARTITION_COLUMNS = (("Partition", 256), ("Time", 24))
_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)$")
_RESERVATION = re.compile(r"\bStartTime=(\S+) .*?\bNodes=(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """When Slurm ends a job.

    Attributes:
        limit_s: Its time limit.
        end_s: When that is over, seconds since the epoch.
        partition: Its partition.
    """

    limit_s: float
    end_s: float
    partition: str


class TimeLimits:
    """Slurm's time limits. Every method raises SlurmError if Slurm refuses or does not answer in time."""

    def __init__(self, slurm: SlurmCommands) -> None:
        self._slurm = slurm

    def of(self, job_id: int) -> JobEnd | None:
        """Return when a job ends; None if it does not run, has no limit, or Slurm no longer knows it."""
        try:
            text = self._slurm.ask("squeue", "-h", "-a", "-j", str(job_id), "-O", format_of(_COLUMNS))
        except SlurmError as exc:
            if UNKNOWN_JOB in str(exc):
                return None
            raise
        for row in cut(text, _COLUMNS):
            if row["JobID"] == str(job_id) and row["State"] == "RUNNING":
                limit_s, end_s = parse_limit_s(row["TimeLimit"]), seconds_of(row["EndTime"])
                if limit_s is not None and end_s is not None:
                    return JobEnd(limit_s=limit_s, end_s=end_s, partition=row["Partition"])
        return None

    def room_s(self, end: JobEnd, *, node: str, now_s: float) -> float:
        """Return by how much a job's end may move.

        Args:
            end: Its end as it is.
            node: Where it runs.
            now_s: Seconds since the epoch.
        """
        longest_s = self._longest_s(end.partition)
        starts = [start_s for start_s in self._reserved_from(node) if start_s > now_s]
        return min(
            float("inf") if longest_s is None else longest_s - end.limit_s,
            min(starts, default=float("inf")) - end.end_s,
        )

    def add(self, job_id: int, minutes: int) -> None:
        """Raise a job's limit.

        Args:
            job_id: The job.
            minutes: By how much.
        """
        self._slurm.ask("scontrol", "update", f"JobId={self._slurm.exact(job_id)}", f"TimeLimit=+{minutes}")

    def _longest_s(self, partition: str) -> float | None:
        """Return a partition's MaxTime; None if it has none."""
        rows = cut(
            self._slurm.ask("sinfo", "-h", "-a", "-O", format_of(_PARTITION_COLUMNS)), _PARTITION_COLUMNS
        )
        limits = [parse_limit_s(row["Time"]) for row in rows if row["Partition"].rstrip("*") == partition]
        if not limits:
            raise SlurmError(f"sinfo shows no partition {partition}")
        return limits[0]

    def _reserved_from(self, node: str) -> list[float]:
        """Return when each reservation of a node begins or began, seconds since the epoch."""
        found = []
        for line in self._slurm.ask("scontrol", "-o", "show", "reservation").splitlines():
            match = _RESERVATION.search(line)
            if match is None:
                continue
            start_s = seconds_of(match[1])
            names = self._slurm.ask("scontrol", "show", "hostnames", match[2]).split()
            if start_s is not None and node in names:
                found.append(start_s)
        return found


def parse_limit_s(text: str) -> float | None:
    """Return a time limit as squeue and sinfo print it; None if there is none.

    >>> parse_limit_s("2-03:00:30"), parse_limit_s("1:00:00"), parse_limit_s("30:00"), parse_limit_s("UNLIMITED")
    (183630.0, 3600.0, 1800.0, None)
    """
    match = _LIMIT.match(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
