"""Names by which scontrol finds one job, from squeue's record of its place in an array or a heterogeneous job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.queries.columns import Columns, known

TASK_COLUMNS: Columns = (
    ("JobID", 20),
    ("UserID", 12),
    ("ArrayJobID", 20),
    ("HetJobID", 20),
    ("HetJobOffset", 20),
    ("ArrayTaskID", 256),
)
_ID = re.compile(r"[1-9][0-9]{0,9}")
_OFFSET = re.compile(r"[0-9]{1,4}")
_TASKS = re.compile(r"[0-9]{1,10}(?:[-:,][0-9]{1,10})*")


def exact_name(row: Mapping[str, str]) -> str:
    """Return the name of this job alone for scontrol, by scontrol(1), "job_list".

    Raises:
        SlurmError: The row has something other than ids.

    >>> exact_name({"JobID": "7", "ArrayJobID": "7", "ArrayTaskID": "N/A"})
    '7'
    >>> exact_name({"JobID": "7", "ArrayJobID": "7", "ArrayTaskID": "3"})
    '7_3'
    >>> exact_name({"JobID": "7", "ArrayJobID": "7", "ArrayTaskID": "4-9:2%1"})
    '7_[4-9:2]'
    """
    tasks = known(row["ArrayTaskID"]).partition("%")[0]
    if not tasks:
        return _checked(row["JobID"], _ID)
    array = _checked(row["ArrayJobID"], _ID)
    return f"{array}_{tasks if tasks.isdecimal() else f'[{_checked(tasks, _TASKS)}]'}"


def shown_name(row: Mapping[str, str]) -> str:
    """Return the name by which `scontrol show job` shows only this job; a heterogeneous job's id shows all components.

    >>> shown_name({"JobID": "7", "ArrayJobID": "7", "ArrayTaskID": "N/A", "HetJobID": "7", "HetJobOffset": "0"})
    '7+0'
    """
    component = _component(row)
    return "+".join(component) if component else exact_name(row)


def requeued_name(row: Mapping[str, str]) -> str:
    """Return the name for `scontrol requeue`: a heterogeneous job is requeued as a whole, by its first component's id.

    >>> requeued_name({"JobID": "8", "ArrayJobID": "8", "ArrayTaskID": "N/A", "HetJobID": "7", "HetJobOffset": "1"})
    '7'
    """
    component = _component(row)
    return component[0] if component else exact_name(row)


def squeue_name(name: str) -> str:
    """Return squeue's name for all that scontrol finds by a name; squeue accepts no lists of tasks (22.05.8).

    >>> squeue_name("7_[4-9:2]"), squeue_name("7_3")
    ('7', '7_3')
    """
    return name.partition("_[")[0]


def check_found(name: str, row: Mapping[str, str], found: Sequence[Mapping[str, str]]) -> None:
    """Check that a name finds this job, and nothing of another user or outside its array or components.

    Args:
        name: The name for scontrol.
        row: squeue's record of the job.
        found: squeue's records of all that it finds by the name.

    Raises:
        SlurmError: It finds anything else.
    """
    same = [{key: each.get(key) for key in _whole(row)} == _whole(row) for each in found]
    if not same or not all(same) or row["JobID"] not in {each["JobID"] for each in found}:
        raise SlurmError(f"job {row['JobID']}: {name} is not this job alone, or not its owner's")
    if name.partition("_")[2].isdecimal() and len(found) != 1:
        raise SlurmError(f"job {row['JobID']}: {name} is more than one job")


def _whole(row: Mapping[str, str]) -> dict[str, str | None]:
    """Return the fields common to all components of a heterogeneous job, or all tasks of an array."""
    return {key: row.get(key) for key in ("UserID", "HetJobID" if _component(row) else "ArrayJobID")}


def _component(row: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the id of a heterogeneous job and the number of a component; None for any other job."""
    first, offset = known(row.get("HetJobID", "")), known(row.get("HetJobOffset", ""))
    if first in ("", "0") or not offset:
        return None
    return _checked(first, _ID), _checked(offset, _OFFSET)


def _checked(text: str, form: re.Pattern[str]) -> str:
    if form.fullmatch(text) is None:
        raise SlurmError(f"squeue printed {text!r:.80} where the id of a job was due")
    return text
