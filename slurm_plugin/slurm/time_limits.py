"""Determine when Slurm ends a job, and what prevents a later end.

Slurm accepts a longer limit from root without checking the partition's limit, reservations, or the MaxWall of QOS and
associations (seen on 22.05.8), so all of them are checked here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.queries.columns import cut, lines
from slurm_plugin.slurm.queries.printed import seconds_of

_COLUMNS = (
    ("JobID", 20),
    ("State", 24),
    ("TimeLimit", 24),
    ("EndTime", 24),
    ("Partition", 256),
    ("UserName", 256),
    ("QOS", 256),
    ("Account", 256),
)
_PARTITION_COLUMNS = (("Partition", 256), ("Time", 24))
_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)$")
_WALL = re.compile(r"\bMaxWallPJ=(\d+)")
_QOS = re.compile(r" QoS=(\S+)")
_RESERVATION = re.compile(r"\bStartTime=(\S+) .*?\bNodes=(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """When Slurm ends a job.

    Attributes:
        limit_s: Its time limit.
        end_s: When that limit is reached, seconds since the epoch.
        partition: Its partition.
        qos: Its QOS; "" without accounting, like the next two.
        account: Its account.
        user: Its user.
    """

    limit_s: float
    end_s: float
    partition: str
    qos: str = ""
    account: str = ""
    user: str = ""


class TimeLimits:
    """Slurm's time limits. Every method raises SlurmError if Slurm refuses or does not answer in time."""

    def __init__(self, slurm: SlurmCommands) -> None:
        self._slurm = slurm

    def of(self, job_id: int) -> JobEnd | None:
        """Return when a job ends; None if it does not run, has no limit, or Slurm no longer knows it."""
        for row in self._slurm.squeue(_COLUMNS, "-j", str(job_id)):
            if row["JobID"] == str(job_id) and row["State"] == "RUNNING":
                limit_s, end_s = parse_limit_s(row["TimeLimit"]), seconds_of(row["EndTime"])
                if limit_s is not None and end_s is not None:
                    return JobEnd(
                        limit_s=limit_s,
                        end_s=end_s,
                        partition=row["Partition"],
                        qos=row["QOS"],
                        account=row["Account"],
                        user=row["UserName"],
                    )
        return None

    def waiting(self, job_ids: Collection[int]) -> dict[int, float]:
        """Return the limits of the waiting ones of these jobs; a job without a limit is left out."""
        columns, ids = _COLUMNS[:3], ",".join(map(str, job_ids))
        rows = self._slurm.squeue(columns, "-t", "PENDING", "-j", ids)
        limits = {row["JobID"]: parse_limit_s(row["TimeLimit"]) for row in rows}
        found = {job_id: limits.get(str(job_id)) for job_id in job_ids}
        return {job_id: limit_s for job_id, limit_s in found.items() if limit_s is not None}

    def margin_s(self, end: JobEnd, *, node: str, now_s: float) -> float:
        """Return by how much a job's end may move.

        Args:
            end: Its present end.
            node: Where it runs.
            now_s: Seconds since the epoch.
        """
        longest_s = self._longest_s(end.partition)
        starts = [start_s for start_s in self._reserved_from(node) if start_s > now_s]
        return min(
            float("inf") if longest_s is None else longest_s - end.limit_s,
            self._wall_s(end) - end.limit_s,
            min(starts, default=float("inf")) - end.end_s,
        )

    def add(self, job_id: int, minutes: int) -> None:
        """Raise a job's limit.

        Args:
            job_id: The job.
            minutes: Minutes to add.
        """
        self._update(job_id, f"+{minutes}")

    def set(self, job_id: int, minutes: int) -> None:
        """Set a job's limit.

        Args:
            job_id: The job.
            minutes: The new limit.
        """
        self._update(job_id, f"{minutes}")

    def _update(self, job_id: int, limit: str) -> None:
        self._slurm.ask("scontrol", "update", f"JobId={self._slurm.exact(job_id)}", f"TimeLimit={limit}")

    def _longest_s(self, partition: str) -> float | None:
        """Return a partition's MaxTime; None if it has none."""
        rows = cut(self._slurm.columns("sinfo", _PARTITION_COLUMNS, "-a"), _PARTITION_COLUMNS)
        limits = [parse_limit_s(row["Time"]) for row in rows if row["Partition"].rstrip("*") == partition]
        if not limits:
            raise SlurmError(f"sinfo shows no partition {partition}")
        return limits[0]

    def _wall_s(self, end: JobEnd) -> float:
        """Return the least MaxWall of a job's QOS, its partition's QOS and its association, where they are enforced."""
        if "limits" not in self._slurm.config().get("AccountingStorageEnforce", ""):
            return float("inf")
        partition = _QOS.search(self._slurm.ask("scontrol", "-o", "show", "partition", end.partition))
        qos = {end.qos, partition[1] if partition else "N/A"} - {"", "N/A"}
        filters = (f"users={end.user}", f"accounts={end.account}", f"qos={','.join(sorted(qos))}")
        return parse_wall_s(
            self._slurm.ask("scontrol", "show", "assoc_mgr", *filters, "flags=assoc,qos"), user=end.user
        )

    def _reserved_from(self, node: str) -> list[float]:
        """Return when each reservation of a node begins or began, seconds since the epoch."""
        found = []
        for line in lines(self._slurm.ask("scontrol", "-o", "show", "reservation")):
            match = _RESERVATION.search(line)
            if match is None:
                continue
            start_s = seconds_of(match[1])
            names = self._slurm.ask("scontrol", "show", "hostnames", match[2]).split()
            if start_s is not None and node in names:
                found.append(start_s)
        return found


def parse_wall_s(text: str, *, user: str) -> float:
    r"""Return the least MaxWall in `scontrol show assoc_mgr` for the QOS and one user; infinite if there is none.

    An account's limit is also in its users' records, unless they have a different one.

    Args:
        text: Its output.
        user: Name of the user.

    >>> parse_wall_s("ClusterName=c UserName=bob(5) ID=4\n MaxWallPJ=30\nQOS=normal(1)\n MaxWallPJ=", user="bob")
    1800.0
    """
    least_s, counts = float("inf"), False
    for line in lines(text):
        if line.startswith("ClusterName="):
            counts = f" UserName={user}(" in line
        elif line.startswith("QOS="):
            counts = True
        match = _WALL.search(line) if counts else None
        if match is not None:
            least_s = min(least_s, 60.0 * int(match[1]))
    return least_s


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
