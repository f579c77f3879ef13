"""Slurm through its own commands: squeue, sinfo and scontrol, with output that users cannot forge.

`scontrol show job` prints a job's name and comment among its other lines, and a user may put line ends into both, so
that `UserId=...` on a line of its own proves nothing. squeue and sinfo print columns of fixed width instead; free
text comes last there, or not at all where several jobs are listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from slurm_plugin.core.errors import CommandError, SlurmError
from slurm_plugin.core.shell import run
from slurm_plugin.slurm.columns import cut
from slurm_plugin.slurm.conf_files import away_s, find_slurm_conf, settings_of
from slurm_plugin.slurm.control import JobChange, JobView, NodeView, Standing
from slurm_plugin.slurm.environment import slurm_environment
from slurm_plugin.slurm.printed import (
    JOB_COLUMNS,
    MORE_COLUMNS,
    NAME_COLUMNS,
    NODE_COLUMNS,
    TASK_COLUMNS,
    exact_name,
    format_of,
    parse_config,
    parse_given,
    parse_jobs,
    parse_names,
    parse_nodes,
    parse_version,
    requeued_name,
    shown_name,
)
from slurm_plugin.slurm.standings import ADMIN_COMMENT, STANDING_COLUMNS, parse_standings
from slurm_plugin.slurm.versions import requeue_delay_s, traits

UNKNOWN_JOB = "Invalid job id"
"""What squeue says of an id that slurmctld does not know."""
_ALREADY_PENDING = "pending"


class SlurmCommands:
    """SlurmControl over the command line.

    Args:
        slurm_conf: Path for SLURM_CONF; "" lets the commands find it.
        timeout_s: After this long a command is stopped that waits for no machine without power.
    """

    def __init__(self, *, slurm_conf: str = "", timeout_s: float = 3.0) -> None:
        self._env = slurm_environment(slurm_conf)
        self._slurm_conf = find_slurm_conf(slurm_conf, os.environ)
        self._away_s = away_s(self._slurm_conf)
        self._timeout_s = timeout_s
        self._version: tuple[int, int, int] | None = None
        self._named: tuple[int, dict[str, str]] = (0, {})

    def version(self) -> tuple[int, int, int]:
        """Return Slurm's version; asked once."""
        if self._version is None:
            self._version = parse_version(self.ask("scontrol", "--version"))
        return self._version

    def job(self, job_id: int) -> JobView | None:
        """Return a job with its comments, or None if Slurm no longer knows it."""
        columns = (*JOB_COLUMNS, *TASK_COLUMNS[1:], *MORE_COLUMNS)
        try:
            text = self.ask("squeue", "-h", "-a", "-t", "all", "-j", str(job_id), "-O", format_of(columns))
        except SlurmError as exc:
            if UNKNOWN_JOB in str(exc):
                return None
            raise
        self._keep_names(job_id, cut(text, columns))
        found = [view for view in parse_jobs(text, columns) if view.job_id == job_id]
        return found[0] if found else None

    def jobs(self, *, node: str | None = None, states: tuple[str, ...] = ()) -> tuple[JobView, ...]:
        """Return jobs, of one node and in some states if asked; their comments are left empty.

        Args:
            node: Only jobs on this node; None takes all.
            states: Only jobs in these states, in Slurm's words; none takes all.
        """
        chosen = ["-t", ",".join(states) if states else "all", *(["-w", node] if node else [])]
        return parse_jobs(self.ask("squeue", "-h", "-a", *chosen, "-O", format_of(JOB_COLUMNS)), JOB_COLUMNS)

    def standing(self, job_id: int) -> Standing | None:
        """Return where a job stands in the queue, or None if Slurm no longer knows it."""
        columns = (*STANDING_COLUMNS, *TASK_COLUMNS[1:], ADMIN_COMMENT)
        try:
            text = self.ask("squeue", "-h", "-a", "-t", "all", "-j", str(job_id), "-O", format_of(columns))
        except SlurmError as exc:
            if UNKNOWN_JOB in str(exc):
                return None
            raise
        self._keep_names(job_id, cut(text, columns))
        return next((each for each in parse_standings(text, columns) if each.job_id == job_id), None)

    def standings(self) -> tuple[Standing, ...]:
        """Return where all jobs stand that wait."""
        text = self.ask("squeue", "-h", "-a", "-t", "PENDING", "-O", format_of(STANDING_COLUMNS))
        return parse_standings(text, STANDING_COLUMNS)

    def given(self, job_id: int) -> str:
        """Return the GRES that a job really has on each of its nodes."""
        return parse_given(self.ask("scontrol", "-d", "show", "job", shown_name(self._names(job_id))))

    def nodes(self) -> tuple[NodeView, ...]:
        """Return all nodes."""
        return parse_nodes(self.ask("sinfo", "-h", "-a", "-N", "-O", format_of(NODE_COLUMNS)))

    def node(self, name: str) -> NodeView | None:
        """Return one node; None if Slurm has none of this name."""
        text = self.ask("sinfo", "-h", "-a", "-N", "-n", name, "-O", format_of(NODE_COLUMNS))
        return next((view for view in parse_nodes(text) if view.name == name), None)

    def names(self, job_id: int) -> dict[str, str]:
        """Return what %A, %a and %x stand for in the paths of a job's output; nothing if Slurm forgot it."""
        text = self.ask("squeue", "-h", "-a", "-t", "all", "-j", str(job_id), "-O", format_of(NAME_COLUMNS))
        return next((parse_names(row) for row in cut(text, NAME_COLUMNS) if row["JobID"] == str(job_id)), {})

    def config(self) -> dict[str, str]:
        """Return the running configuration."""
        return parse_config(self.ask("scontrol", "show", "config", pings=True))

    def requeue_delay_s(self) -> int:
        """Return how long a requeued job must wait at least, by the slurm.conf of this machine."""
        settings = {} if self._slurm_conf is None else settings_of(self._slurm_conf)
        return requeue_delay_s(self.version(), settings.get("authinfo", ""))

    def requeue(self, job_id: int) -> None:
        """Put a batch job back into the queue; already pending is success."""
        try:
            self.ask("scontrol", "requeue", requeued_name(self._names(job_id)))
        except SlurmError as exc:
            if _ALREADY_PENDING not in str(exc):
                raise

    def requeue_soon(self, job_id: int) -> None:
        """Put a batch job back and let it start again as early as this version bears.

        Slurm's own delay is two minutes. It stays where Slurm does not take the earlier start.

        Raises:
            SlurmError: The job does not go back.
        """
        self.requeue(job_id)
        with suppress(SlurmError):
            self.update(job_id, JobChange(start_in_s=self.requeue_delay_s()))

    def update(self, job_id: int, change: JobChange) -> None:
        """Change a job in one request.

        Args:
            job_id: The job.
            change: What to change; fields that are None stay.
        """
        words = update_words(change, gres_prefix=traits(self.version()).gres_prefix if change.gres else "")
        if words:
            self.ask("scontrol", "update", f"JobId={self.exact(job_id)}", *words)

    def exact(self, job_id: int) -> str:
        """Return how scontrol must be told of one job.

        The task of an array that starts last has the array's own id, and to scontrol that id means every task: to
        requeue it runs those again that are at work or have ended.

        Raises:
            SlurmError: Slurm does not know the job, or does not answer.
        """
        return exact_name(self._names(job_id))

    def _names(self, job_id: int) -> dict[str, str]:
        """Return what squeue says of a job's place in an array or a heterogeneous job."""
        known, row = self._named  # a hook asks several times for its one job
        if known == job_id:
            return row
        text = self.ask("squeue", "-h", "-a", "-t", "all", "-j", str(job_id), "-O", format_of(TASK_COLUMNS))
        found = self._keep_names(job_id, cut(text, TASK_COLUMNS))
        if found is None:
            raise SlurmError(f"job {job_id}: {UNKNOWN_JOB}")
        return found

    def _keep_names(self, job_id: int, rows: Iterable[dict[str, str]]) -> dict[str, str] | None:
        """Keep a job's row for later questions and return it; None if Slurm knows no such job."""
        row = next((row for row in rows if row["JobID"] == str(job_id)), None)
        if row is not None and "[" not in exact_name(row):  # tasks that wait leave their record one by one
            self._named = (job_id, row)
        return row

    def ask(self, *argv: str, pings: bool = False) -> str:
        """Run one of Slurm's commands and return what it printed.

        Args:
            argv: The command.
            pings: Whether it asks every slurmctld besides, as what shows the configuration does.
        """
        timeout_s = self._timeout_s + self._away_s * (2 if pings else 1)
        try:
            return run(argv, timeout_s=timeout_s, env=self._env)
        except CommandError as exc:
            raise SlurmError(str(exc)) from exc


def update_words(change: JobChange, *, gres_prefix: str) -> tuple[str, ...]:
    """Return the words of `scontrol update` for a change.

    Args:
        change: What to change.
        gres_prefix: What this version wants before a GRES: "gres:" or "gres/".

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
