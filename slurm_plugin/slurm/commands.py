"""Slurm through its own commands: squeue, sinfo and scontrol, with output that users cannot forge.

`scontrol show job` prints a job's name and comment among its other lines, and a user may put line ends into both, so
that `UserId=...` on a separate line proves nothing. squeue and sinfo print columns of fixed width instead
(queries/columns.py); users' text comes last there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from slurm_plugin.core.errors import CommandError, SlurmError
from slurm_plugin.core.process.run import find_program, run_bytes
from slurm_plugin.slurm.control import JobChange, JobView, NodeView, Standing
from slurm_plugin.slurm.environment import slurm_environment
from slurm_plugin.slurm.files.conf_files import away_s, find_slurm_conf, settings_of
from slurm_plugin.slurm.names import (
    TASK_COLUMNS,
    check_found,
    exact_name,
    requeued_name,
    shown_name,
    squeue_name,
)
from slurm_plugin.slurm.queries.columns import Columns, Row, cut, known, records
from slurm_plugin.slurm.queries.printed import (
    ACCOUNT_COLUMNS,
    JOB_COLUMNS,
    NAME_COLUMNS,
    NODE_COLUMNS,
    ONE_JOB_COLUMNS,
    format_of,
    job_view,
    parse_config,
    parse_given,
    parse_given_indices,
    parse_names,
    parse_nodes,
)
from slurm_plugin.slurm.queries.standings import ONE_STANDING_COLUMNS, STANDING_COLUMNS, standing
from slurm_plugin.slurm.versions import parse_version, requeue_delay_s, traits

T = TypeVar("T")

UNKNOWN_JOB = "Invalid job id"
"""Message of squeue for an id that slurmctld does not know."""
_ALREADY_PENDING = "pending"


class SlurmCommands:
    """SlurmControl over the command line.

    Args:
        slurm_conf: Path for SLURM_CONF; "" lets the commands find it.
        timeout_s: After this long a command is stopped; waits for a machine without power are added.
        owners: User of each job, if a hook's environment names it: nothing is done if squeue disagrees.
    """

    def __init__(
        self, *, slurm_conf: str = "", timeout_s: float = 3.0, owners: Mapping[int, int] | None = None
    ) -> None:
        self._env = slurm_environment(slurm_conf)
        self._slurm_conf = find_slurm_conf(slurm_conf, os.environ)
        self._away_s = away_s(self._slurm_conf)
        self._timeout_s = timeout_s
        self._version: tuple[tuple[int, ...], tuple[int, int, int]] | None = None
        """Slurm's version, and the file that printed it."""
        self._named: tuple[int, Row] = (0, {})
        self._checked: dict[int, tuple[str, ...]] = {}
        self._owners = owners or {}

    def version(self) -> tuple[int, int, int]:
        """Return Slurm's version; queried again only once Slurm was upgraded."""
        program = _file_of("scontrol")
        if self._version is None or self._version[0] != program:
            self._version = program, parse_version(self.ask("scontrol", "--version"))
        return self._version[1]

    def job(self, job_id: int) -> JobView | None:
        """Return a job with its comments, or None if Slurm no longer knows it."""
        return self._one(job_id, ONE_JOB_COLUMNS, job_view)

    def jobs(self, *, node: str | None = None, states: tuple[str, ...] = ()) -> tuple[JobView, ...]:
        """Return jobs, optionally of one node and in some states; their comments are left empty.

        Args:
            node: Only jobs on this node; None selects all.
            states: Only jobs in these states, by Slurm's names; none selects all.
        """
        chosen = ["-t", ",".join(states) if states else "all", *(["-w", node] if node else [])]
        return records(self.columns("squeue", JOB_COLUMNS, "-a", *chosen), JOB_COLUMNS, job_view)

    def standing(self, job_id: int) -> Standing | None:
        """Return the queue position of a job, or None if Slurm no longer knows it."""
        return self._one(job_id, ONE_STANDING_COLUMNS, standing)

    def standings(self) -> tuple[Standing, ...]:
        """Return the queue positions of all jobs that wait."""
        content = self.columns("squeue", STANDING_COLUMNS, "-a", "-t", "PENDING")
        return records(content, STANDING_COLUMNS, standing)

    def given(self, job_id: int) -> str:
        """Return the GRES that a job really has on each of its nodes."""
        return parse_given(self.ask("scontrol", "-d", "show", "job", shown_name(self._names(job_id))))

    def given_indices(self, job_id: int) -> tuple[int, ...]:
        """Return the indices of the GPUs that a job of one node really has; nothing where that is not certain."""
        return parse_given_indices(self.ask("scontrol", "-d", "show", "job", shown_name(self._names(job_id))))

    def nodes(self) -> tuple[NodeView, ...]:
        """Return all nodes."""
        return parse_nodes(self.columns("sinfo", NODE_COLUMNS, "-a", "-N"))

    def node(self, name: str) -> NodeView | None:
        """Return one node; None if Slurm has none of this name."""
        content = self.columns("sinfo", NODE_COLUMNS, "-a", "-N", "-n", name)
        return next((view for view in parse_nodes(content) if view.name == name), None)

    def names(self, job_id: int) -> dict[str, str]:
        """Return the values of %A, %a and %x in the paths of a job's output; nothing if Slurm forgot the job."""
        rows = self._rows(str(job_id), NAME_COLUMNS)
        return next((parse_names(row) for row in rows if row["JobID"] == str(job_id)), {})

    def account(self, job_id: int) -> str:
        """Return a job's account; "" if it has none, or Slurm forgot the job."""
        rows = self._rows(str(job_id), ACCOUNT_COLUMNS)
        return next((known(row["Account"]) for row in rows if row["JobID"] == str(job_id)), "")

    def config(self) -> dict[str, str]:
        """Return the running configuration."""
        return parse_config(self.ask("scontrol", "show", "config", pings=True))

    def requeue_delay_s(self) -> int:
        """Return the minimum wait of a requeued job, by the slurm.conf of this machine."""
        settings = {} if self._slurm_conf is None else settings_of(self._slurm_conf)
        return requeue_delay_s(self.version(), settings.get("authinfo", ""))

    def requeue(self, job_id: int) -> None:
        """Requeue a batch job; already pending is success."""
        try:
            self.ask("scontrol", "requeue", self._confirmed(job_id, requeued_name(self._names(job_id))))
        except SlurmError as exc:
            if _ALREADY_PENDING not in str(exc):
                raise

    def requeue_soon(self, job_id: int) -> None:
        """Requeue a batch job and let it start again as early as this version allows.

        Slurm's own delay is two minutes. It stays if Slurm does not accept the earlier start.

        Raises:
            SlurmError: The job is not requeued.
        """
        self.requeue(job_id)
        with suppress(SlurmError):
            self.update(job_id, JobChange(start_in_s=self.requeue_delay_s()))

    def update(self, job_id: int, change: JobChange) -> None:
        """Change a job in one request.

        Args:
            job_id: The job.
            change: The changes; fields that are None stay.
        """
        words = update_words(change, gres_prefix=traits(self.version()).gres_prefix if change.gres else "")
        if words:
            self.ask("scontrol", "update", f"JobId={self.exact(job_id)}", *words)

    def exact(self, job_id: int) -> str:
        """Return the name by which scontrol finds exactly one job.

        The task of an array that starts last has the array's own id, and to scontrol that id means every task:
        requeuing it would also rerun tasks that are running or have ended.

        Raises:
            SlurmError: Slurm does not know the job, does not answer, or finds more than this job by that name.
        """
        return self._confirmed(job_id, exact_name(self._names(job_id)))

    def _one(self, job_id: int, columns: Columns, make: Callable[[Row], T]) -> T | None:
        """Return a job's converted record; None if Slurm no longer knows it."""
        row = self._keep_names(job_id, self.squeue(columns, "-t", "all", "-j", str(job_id)))
        try:
            return None if row is None else make(row)
        except ValueError as exc:
            raise SlurmError(f"squeue printed an invalid job: {exc}") from exc

    def _rows(self, name: str, columns: Columns) -> list[Row]:
        """Return squeue's records of all jobs that it finds by a name."""
        return cut(self.columns("squeue", columns, "-a", "-t", "all", "-j", name), columns)

    def _names(self, job_id: int) -> Row:
        """Return squeue's record of a job's place in an array or a heterogeneous job."""
        known, row = self._named  # a hook queries its one job several times
        if known == job_id:
            return row
        found = self._keep_names(job_id, self._rows(str(job_id), TASK_COLUMNS))
        if found is None:
            raise SlurmError(f"job {job_id}: {UNKNOWN_JOB}")
        return found

    def _keep_names(self, job_id: int, rows: Iterable[Row]) -> Row | None:
        """Keep a job's row for later queries and return it; None if Slurm knows no such job.

        Raises:
            SlurmError: The job does not match the hook's environment.
        """
        row = next((row for row in rows if row["JobID"] == str(job_id)), None)
        if row is None:
            return None
        owner = self._owners.get(job_id)
        if owner is not None and row["UserID"] != str(owner):
            raise SlurmError(
                f"job {job_id} is user {row['UserID']:.20}'s to squeue, and user {owner}'s to its hook"
            )
        if "[" not in exact_name(row):  # waiting tasks leave their common record one by one
            self._named = (job_id, row)
        return row

    def _confirmed(self, job_id: int, name: str) -> str:
        """Return a name for scontrol, after checking that it finds this job and nothing of another user.

        Raises:
            SlurmError: The check failed.
        """
        if name not in (str(job_id), *self._checked.get(job_id, ())):
            check_found(name, self._names(job_id), self._rows(squeue_name(name), TASK_COLUMNS))
            self._checked = {job_id: (name, *self._checked.get(job_id, ()))}
        return name

    def ask(self, *argv: str, pings: bool = False) -> str:
        """Run one of Slurm's commands and return what it printed, as text.

        Args:
            argv: The command.
            pings: Whether it also pings every slurmctld, as the command that shows the configuration does.
        """
        return self._run(argv, pings=pings).decode(errors="replace")

    def squeue(self, columns: Columns, *which: str) -> list[Row]:
        """Return squeue's records; none if slurmctld does not know the job that is asked for.

        Args:
            columns: Names and widths.
            which: Options that select the records.
        """
        try:
            return cut(self.columns("squeue", columns, "-a", *which), columns)
        except SlurmError as exc:
            if UNKNOWN_JOB in str(exc):
                return []
            raise

    def columns(self, program: str, columns: Columns, *which: str) -> bytes:
        """Return a table printed by squeue or sinfo, for columns.py.

        Args:
            program: "squeue" or "sinfo".
            columns: Names and widths.
            which: Options that select the records.
        """
        return self._run((program, "-h", *which, "-O", format_of(columns)))

    def _run(self, argv: Sequence[str], *, pings: bool = False) -> bytes:
        timeout_s = self._timeout_s + self._away_s * (2 if pings else 1)
        try:
            return run_bytes(argv, timeout_s=timeout_s, env=self._env)
        except CommandError as exc:
            raise SlurmError(str(exc)) from exc


def _file_of(program: str) -> tuple[int, ...]:
    """Return what differs once another file is in a program's place."""
    try:
        found = os.stat(find_program(program))
    except (CommandError, OSError):
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns


def update_words(change: JobChange, *, gres_prefix: str) -> tuple[str, ...]:
    """Return the words of `scontrol update` for a change.

    Args:
        change: The changes.
        gres_prefix: Prefix of a GRES in this version: "gres:" or "gres/".

    >>> update_words(JobChange(gres="shard:40", nice=-7), gres_prefix="gres:")
    ('TresPerNode=gres:shard:40', 'Nice=-7')
    >>> update_words(JobChange(per_task="cpu=2,gres/shard:40"), gres_prefix="")
    ('TresPerTask=cpu=2,gres/shard:40',)
    """
    start = "now" if change.start_now else None
    if change.start_in_s is not None:
        start = f"now+{change.start_in_s}"
    values = {
        "AdminComment": change.admin_comment,
        "Comment": change.comment,
        "TresPerNode": None if change.gres is None else f"{gres_prefix}{change.gres}",
        "TresPerTask": change.per_task,
        "Nice": change.nice,
        "StartTime": start,
    }
    return tuple(f"{name}={value}" for name, value in values.items() if value is not None)
