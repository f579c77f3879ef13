"""Parse the output of squeue, sinfo and scontrol: the requested columns, and their conversion to records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from slurm_plugin.core.booking.gres_text import parse_gres
from slurm_plugin.core.booking.verification import least_given
from slurm_plugin.slurm.control import JobView, NodeView
from slurm_plugin.slurm.names import TASK_COLUMNS
from slurm_plugin.slurm.queries.columns import Columns, Row, cut, known, lines, number

JOB_COLUMNS: Columns = (
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
ONE_JOB_COLUMNS: Columns = (
    *TASK_COLUMNS,
    ("Nice", 16),
    *JOB_COLUMNS[2:-4],
    ("admin_comment", 1100),
    *JOB_COLUMNS[-4:],
    ("Comment", 1100),
)
"""Requested for one job only: text of its user comes last. Slurm keeps at most 1,024 bytes of a comment."""
NODE_COLUMNS: Columns = (
    ("NodeList", 256),
    ("NodeAddr", 256),
    ("StateLong", 64),
    ("Gres", 512),
    ("Partition", 256),
    ("Reason", 512),
)
ACCOUNT_COLUMNS: Columns = (*TASK_COLUMNS, ("Account", 256))
NAME_COLUMNS: Columns = (*TASK_COLUMNS, ("Name", 1100))
_SILENT = re.compile(r"(?m)^Slurmctld\(\w+\) at (\S+) is DOWN$")
_PLACES = re.compile(r"\b(?:gpu|shard)\b[^(,]*\(([^)]*)\)")
_LAYOUT = re.compile(r"(?m)^ +Nodes=\S+ CPU_IDs=\S* Mem=\d+ GRES=(\S*)")


def parse_nodes(content: bytes) -> tuple[NodeView, ...]:
    """Return the nodes that sinfo printed, one line for each node and partition."""
    found: dict[str, NodeView] = {}
    for row in cut(content, NODE_COLUMNS):
        name, partition = row["NodeList"], row["Partition"].rstrip("*")
        before = found[name].partitions if name in found else ()
        found[name] = NodeView(
            name=name,
            address=known(row["NodeAddr"]),
            gres=known(row["Gres"]),
            state=row["StateLong"].upper(),
            partitions=(*before, partition),
            reason=known(row["Reason"]),
        )
    return tuple(found.values())


def parse_given(text: str) -> str:
    r"""Return the smallest GRES of all allocation lines that `scontrol -d show job` prints; "" if there is none.

    No other command reports it on 22.05. A job's name or comment may contain lines that look the same, and the tasks of
    an array come together; a forged line makes the answer smaller or leaves it unchanged.

    >>> parse_given("   NumNodes=1\n     Nodes=n0 CPU_IDs=0 Mem=100 GRES=shard:3(IDX:0)\n")
    'shard:3'
    """
    layouts = tuple(parse_gres(match[1]) for match in _LAYOUT.finditer(text))
    parts = ((item.name, item.type, str(item.count)) for item in least_given(layouts))
    return ",".join(":".join(filter(None, part)) for part in parts)


def parse_given_indices(text: str) -> tuple[int, ...]:
    """Return the indices of a job's GPUs that `scontrol -d show job` prints; nothing unless there is one such line.

    Since 23.11 shards stand there as how many of how many, for each GPU in turn.

    >>> parse_given_indices("     Nodes=n0 CPU_IDs=0 Mem=100 GRES=gpu:2(IDX:0,2-3)")
    (0, 2, 3)
    >>> parse_given_indices("     Nodes=n0 CPU_IDs=0 Mem=100 GRES=shard:3(0/39,3/39)")
    (1,)
    """
    layouts = _LAYOUT.findall(text)
    found: set[int] = set()
    for inside in _PLACES.findall(layouts[0]) if len(layouts) == 1 else ():
        parts = inside.removeprefix("IDX:").split(",")
        if "/" in inside:
            found |= {at for at, part in enumerate(parts) if not part.startswith("0/")}
        else:
            ends = [part.partition("-") for part in parts if part.replace("-", "").isdecimal()]
            found |= {at for first, _, last in ends for at in range(int(first), int(last or first) + 1)}
    return tuple(sorted(found))


def parse_names(row: Mapping[str, str]) -> dict[str, str]:
    """Return the values of codes in a path, by sbatch(1), "filename pattern"; %a only for an array's task.

    >>> parse_names({"ArrayJobID": "7", "ArrayTaskID": "N/A", "Name": "train"})
    {'x': 'train', 'A': '7'}
    """
    codes = {"x": row["Name"], "A": row["ArrayJobID"], "a": known(row["ArrayTaskID"])}
    return {code: text for code, text in codes.items() if text}


def parse_config(text: str) -> dict[str, str]:
    """Return the output of `scontrol show config`, names in Slurm's spelling."""
    pairs = (line.partition("=") for line in lines(text) if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def silent_controllers(text: str) -> tuple[str, ...]:
    r"""Return the machines where slurmctld does not answer, from the last lines of `scontrol show config`.

    >>> silent_controllers("\nSlurmctld(primary) at a is UP\nSlurmctld(backup) at b is DOWN\n")
    ('b',)
    """
    return tuple(_SILENT.findall(text))


def format_of(columns: Columns) -> str:
    """Return columns in the format of option -O of squeue and sinfo."""
    return ",".join(f"{name}:{width}" for name, width in columns)


def job_view(row: Row) -> JobView:
    """Return the job of a record.

    Raises:
        ValueError: A number in it is invalid.
    """
    return JobView(
        job_id=number(row["JobID"]),
        user_id=number(row["UserID"]),
        state=row["State"],
        reason=known(row["Reason"]),
        partition=row["Partition"],
        gres=",".join(
            filter(None, (known(row[f"tres-per-{unit}"]) for unit in ("node", "job", "socket", "task")))
        ),
        node=known(row["BatchHost"]),
        comment=known(row.get("Comment", "")),
        admin_comment=known(row.get("admin_comment", "")),
        priority=number(row["PriorityLong"]),
        nice=number(row.get("Nice", "0")),
        requeue=row["Requeue"] != "0",
        restarts=number(row["RestartCnt"]),
        batch=row["BatchFlag"] != "0",
        start_time_s=seconds_of(row["StartTime"]),
    )


def seconds_of(text: str) -> float | None:
    """Return the time that Slurm printed in seconds since the epoch; None if there is none ("N/A")."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
