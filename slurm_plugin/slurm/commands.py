"""Slurm through its own commands: squeue, sinfo and scontrol, with output that users cannot forge.

`scontrol show job` prints a job's name and comment among its other lines, and a user may put line ends into both, so
that `UserId=...` on a line of its own proves nothing. squeue and sinfo print columns of fixed width instead; free
text comes last there, or not at all where several jobs are listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from slurm_plugin.core.binding import least_given
from slurm_plugin.core.errors import CommandError, SlurmError
from slurm_plugin.core.gres import parse_gres
from slurm_plugin.core.shell import SYSTEM_PATH, run
from slurm_plugin.slurm.columns import cut
from slurm_plugin.slurm.control import JobChange, JobView, NodeView
from slurm_plugin.slurm.versions import traits

_JOB_COLUMNS = (
    ("JobID", 20),
    ("UserID", 12),
    ("State", 24),
    ("RestartCnt", 8),
    ("Requeue", 4),
    ("BatchFlag", 4),
    ("PriorityLong", 16),
    ("StartTime", 24),
    ("Partition", 256),
    ("BatchHost", 256),
    ("Reason", 128),
    ("tres-per-node", 256),
    ("tres-per-job", 256),
    ("tres-per-socket", 256),
    ("tres-per-task", 256),
)
_MORE_COLUMNS = (("Nice", 16), ("Comment", 1100), ("admin_comment", 1100))
"""Asked of one job alone. Slurm keeps at most 1,024 characters of each text."""
_NODE_COLUMNS = (("NodeList", 256), ("StateLong", 64), ("Gres", 512), ("Partition", 256), ("Reason", 512))
_TASK_COLUMNS = (("JobID", 20), ("ArrayJobID", 20), ("ArrayTaskID", 256))
_NAME_COLUMNS = (*_TASK_COLUMNS, ("Name", 1100))
_NOTHING = ("", "N/A", "n/a", "(null)", "None", "none")
_LAYOUT = re.compile(r"(?m)^ +Nodes=\S+ CPU_IDs=\S* Mem=\d+ GRES=(\S*)")
_UNKNOWN_JOB = "Invalid job id"
_ALREADY_PENDING = "pending"


class SlurmCommands:
    """SlurmControl over the command line.

    Args:
        slurm_conf: Path for SLURM_CONF; "" lets the commands find it.
        timeout_s: After this long a command is stopped.
    """

    def __init__(self, *, slurm_conf: str = "", timeout_s: float = 3.0) -> None:
        self._env = {"PATH": ":".join(SYSTEM_PATH), "LC_ALL": "C.UTF-8"}
        if slurm_conf:
            self._env["SLURM_CONF"] = slurm_conf
        self._timeout_s = timeout_s
        self._version: tuple[int, int, int] | None = None
        self._named: tuple[int, str] = (0, "")

    def version(self) -> tuple[int, int, int]:
        """Return Slurm's version; asked once."""
        if self._version is None:
            self._version = parse_version(self.ask("scontrol", "--version"))
        return self._version

    def job(self, job_id: int) -> JobView | None:
        """Return a job with its comments, or None if Slurm no longer knows it."""
        columns = (*_JOB_COLUMNS, *_MORE_COLUMNS)
        try:
            text = self.ask("squeue", "-h", "-a", "-t", "all", "-j", str(job_id), "-O", _format(columns))
        except SlurmError as exc:
            if _UNKNOWN_JOB in str(exc):
                return None
            raise
        found = [view for view in parse_jobs(text, columns) if view.job_id == job_id]
        return found[0] if found else None

    def jobs(self, *, node: str | None = None, states: tuple[str, ...] = ()) -> tuple[JobView, ...]:
        """Return jobs, of one node and in some states if asked; their comments are left empty.

        Args:
            node: Only jobs on this node; None takes all.
            states: Only jobs in these states, in Slurm's words; none takes all.
        """
        chosen = ["-t", ",".join(states) if states else "all", *(["-w", node] if node else [])]
        return parse_jobs(self.ask("squeue", "-h", "-a", *chosen, "-O", _format(_JOB_COLUMNS)), _JOB_COLUMNS)

    def given(self, job_id: int) -> str:
        """Return the GRES that a job really has on each of its nodes."""
        return parse_given(self.ask("scontrol", "-d", "show", "job", self.exact(job_id)))

    def nodes(self) -> tuple[NodeView, ...]:
        """Return all nodes."""
        return parse_nodes(self.ask("sinfo", "-h", "-a", "-N", "-O", _format(_NODE_COLUMNS)))

    def node(self, name: str) -> NodeView | None:
        """Return one node; None if Slurm has none of this name."""
        text = self.ask("sinfo", "-h", "-a", "-N", "-n", name, "-O", _format(_NODE_COLUMNS))
        return next((view for view in parse_nodes(text) if view.name == name), None)

    def names(self, job_id: int) -> dict[str, str]:
        """Return what %A, %a and %x stand for in the paths of a job's output; nothing if Slurm forgot it."""
        text = self.ask("squeue", "-h", "-a", "-t", "all", "-j", str(job_id), "-O", _format(_NAME_COLUMNS))
        return next((parse_names(row) for row in cut(text, _NAME_COLUMNS) if row["JobID"] == str(job_id)), {})

    def config(self) -> dict[str, str]:
        """Return the running configuration."""
        return parse_config(self.ask("scontrol", "show", "config"))

    def requeue(self, job_id: int) -> None:
        """Put a batch job back into the queue; already pending is success."""
        try:
            self.ask("scontrol", "requeue", self.exact(job_id))
        except SlurmError as exc:
            if _ALREADY_PENDING not in str(exc):
                raise

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
        known, name = self._named  # a hook asks several times for its one job
        if known == job_id:
            return name
        text = self.ask("squeue", "-h", "-a", "-t", "all", "-j", str(job_id), "-O", _format(_TASK_COLUMNS))
        rows = [row for row in cut(text, _TASK_COLUMNS) if row["JobID"] == str(job_id)]
        if not rows:
            raise SlurmError(f"job {job_id}: {_UNKNOWN_JOB}")
        name = exact_name(rows[0])
        if "[" not in name:  # tasks that wait leave their record one by one
            self._named = (job_id, name)
        return name

    def ask(self, *argv: str) -> str:
        """Run one of Slurm's commands and return what it printed."""
        try:
            return run(argv, timeout_s=self._timeout_s, env=self._env)
        except CommandError as exc:
            raise SlurmError(str(exc)) from exc


def update_words(change: JobChange, *, gres_prefix: str) -> tuple[str, ...]:
    """Return the words of `scontrol update` for a change.

    Args:
        change: What to change.
        gres_prefix: What this version wants before a GRES: "gres:" or "gres/".

    >>> update_words(JobChange(gres="shard:40", nice=-7), gres_prefix="gres:")
    ('TresPerNode=gres:shard:40', 'Nice=-7')
    """
    start = "now" if change.start_now else None
    if change.start_in_s is not None:
        start = f"now+{change.start_in_s}"
    values = {
        "AdminComment": change.admin_comment,
        "Comment": change.comment,
        "TresPerNode": None if change.gres is None else f"{gres_prefix}{change.gres}",
        "Nice": change.nice,
        "StartTime": start,
    }
    return tuple(f"{name}={value}" for name, value in values.items() if value is not None)


def exact_name(row: Mapping[str, str]) -> str:
    """Return what scontrol takes for this job alone, by scontrol(1), "job_list".

    >>> exact_name({"JobID": "7", "ArrayJobID": "7", "ArrayTaskID": "N/A"})
    '7'
    >>> exact_name({"JobID": "7", "ArrayJobID": "7", "ArrayTaskID": "3"})
    '7_3'
    >>> exact_name({"JobID": "7", "ArrayJobID": "7", "ArrayTaskID": "4-9:2%1"})
    '7_[4-9:2]'
    """
    tasks = _known(row["ArrayTaskID"]).partition("%")[0]
    if not tasks:
        return row["JobID"]
    return f"{row['ArrayJobID']}_{tasks if tasks.isdigit() else f'[{tasks}]'}"


def parse_version(text: str) -> tuple[int, int, int]:
    """Return the version that `scontrol --version` prints.

    Raises:
        SlurmError: There is none in the text.

    >>> parse_version("slurm-wlm 22.05.8")
    (22, 5, 8)
    """
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        raise SlurmError(f"no Slurm version in {text[:80]!r}")
    major, minor, micro = match.groups()
    return int(major), int(minor), int(micro)


def parse_jobs(text: str, columns: Sequence[tuple[str, int]]) -> tuple[JobView, ...]:
    """Return the jobs that squeue printed in these columns.

    Args:
        text: What squeue printed.
        columns: Name and width in characters of each column.

    Raises:
        SlurmError: The output is not what these columns give.
    """
    return tuple(_job_view(row) for row in cut(text, columns))


def parse_nodes(text: str) -> tuple[NodeView, ...]:
    """Return the nodes that sinfo printed, one line for each node and partition."""
    found: dict[str, NodeView] = {}
    for row in cut(text, _NODE_COLUMNS):
        name, partition = row["NodeList"], row["Partition"].rstrip("*")
        before = found[name].partitions if name in found else ()
        found[name] = NodeView(
            name=name,
            gres=_known(row["Gres"]),
            state=row["StateLong"].upper(),
            partitions=(*before, partition),
            reason=_known(row["Reason"]),
        )
    return tuple(found.values())


def parse_given(text: str) -> str:
    r"""Return the smallest GRES of all allocation lines that `scontrol -d show job` prints; "" if there is none.

    No other command tells it on 22.05. A job's name or comment may hold lines that look the same, and the tasks of
    an array come together; whoever forges a line makes the answer smaller or leaves it as it is.

    >>> parse_given("   NumNodes=1\n     Nodes=n0 CPU_IDs=0 Mem=100 GRES=shard:3(IDX:0)\n")
    'shard:3'
    """
    layouts = tuple(parse_gres(match[1]) for match in _LAYOUT.finditer(text))
    parts = ((item.name, item.type, str(item.count)) for item in least_given(layouts))
    return ",".join(":".join(filter(None, part)) for part in parts)


def parse_names(row: Mapping[str, str]) -> dict[str, str]:
    """Return what codes in a path stand for, by sbatch(1), "filename pattern"; %a only of an array's task.

    >>> parse_names({"ArrayJobID": "7", "ArrayTaskID": "N/A", "Name": "train"})
    {'x': 'train', 'A': '7'}
    """
    codes = {"x": row["Name"], "A": row["ArrayJobID"], "a": _known(row["ArrayTaskID"])}
    return {code: text for code, text in codes.items() if text}


def parse_config(text: str) -> dict[str, str]:
    """Return what `scontrol show config` prints, names as Slurm spells them."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _format(columns: Sequence[tuple[str, int]]) -> str:
    return ",".join(f"{name}:{width}" for name, width in columns)


def _job_view(row: dict[str, str]) -> JobView:
    try:
        return JobView(
            job_id=int(row["JobID"]),
            user_id=int(row["UserID"]),
            state=row["State"],
            reason=_known(row["Reason"]),
            partition=row["Partition"],
            gres=",".join(
                filter(None, (_known(row[f"tres-per-{unit}"]) for unit in ("node", "job", "socket", "task")))
            ),
            node=_known(row["BatchHost"]),
            comment=_known(row.get("Comment", "")),
            admin_comment=_known(row.get("admin_comment", "")),
            priority=int(row["PriorityLong"]),
            nice=int(row.get("Nice", "0")),
            requeue=row["Requeue"] != "0",
            restarts=int(row["RestartCnt"]),
            batch=row["BatchFlag"] != "0",
            start_time_s=seconds_of(row["StartTime"]),
        )
    except ValueError as exc:
        raise SlurmError(f"squeue printed what is no job: {exc}") from exc


def _known(text: str) -> str:
    return "" if text in _NOTHING else text


def seconds_of(text: str) -> float | None:
    """Return a point in time as Slurm prints it, in seconds since the epoch; None if it is none ("N/A")."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
