"""scontrol is queried about this job and nothing of another user's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import JobChange
from slurm_plugin.slurm.names import exact_name, requeued_name
from slurm_plugin.slurm.queries.columns import Columns

PLAIN = {"JobID": "12", "UserID": "1000", "ArrayJobID": "12", "ArrayTaskID": "N/A", "HetJobID": "N/A"}
TASK = {**PLAIN, "ArrayJobID": "7", "ArrayTaskID": "3"}
WAITING = {**PLAIN, "JobID": "7", "ArrayJobID": "7", "ArrayTaskID": "4-9:2%1"}
COMPONENT = {**PLAIN, "HetJobID": "11", "HetJobOffset": "1"}
LEADER = {**PLAIN, "JobID": "11", "ArrayJobID": "11", "HetJobID": "11", "HetJobOffset": "0"}


class Shown(SlurmCommands):
    """squeue shows these rows for each name in the query."""

    def __init__(self, rows: dict[str, list[dict[str, str]]], owners: dict[int, int] | None = None) -> None:
        super().__init__(slurm_conf=str(Path("/nonexistent")), owners=owners)
        self.rows, self.reported, self.queries = rows, [], 0  # type: ignore[var-annotated]

    def columns(self, program: str, columns: Columns, *which: str) -> bytes:
        self.queries += 1
        shown = (
            "".join(row.get(name, "N/A").ljust(size) for name, size in columns)
            for row in self.rows[which[-1]]
        )
        return "".join(f"{row}\n" for row in shown).encode()

    def ask(self, *argv: str, pings: bool = False) -> str:
        self.reported.append(argv)
        return ""


@pytest.mark.parametrize(
    ("row", "found", "reported"),
    [
        (PLAIN, {}, "12"),
        (TASK, {"7_3": [TASK]}, "7_3"),
        (WAITING, {}, "7_[4-9:2]"),
        (COMPONENT, {"11": [LEADER, COMPONENT]}, "11"),
    ],
    ids=["a job", "a task", "tasks that wait", "a component"],
)
def test_a_job_is_recognised_by_its_own_name(
    row: dict[str, str], found: dict[str, list[dict[str, str]]], reported: str
) -> None:
    job = row["JobID"]
    slurm = Shown({job: [row], **found}, {int(job): 1000})
    slurm.requeue(int(job))
    slurm.requeue(int(job))
    assert slurm.reported == [("scontrol", "requeue", reported)] * 2
    assert slurm.queries <= 4, "a name is checked once"


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (TASK, {"7_3": [{**TASK, "UserID": "5"}]}),
        (TASK, {"7_3": [{**TASK, "JobID": "13"}]}),
        (TASK, {"7_3": [TASK, {**TASK, "JobID": "13"}]}),
        (TASK, {"7_3": [{**TASK, "ArrayJobID": "8"}]}),
        (TASK, {"7_3": []}),
        (COMPONENT, {"11": [LEADER]}),
        (COMPONENT, {"11": [{**LEADER, "UserID": "5"}, COMPONENT]}),
        (COMPONENT, {"11": [{**LEADER, "HetJobID": "9"}, COMPONENT]}),
        (COMPONENT, {"11": [{**PLAIN, "JobID": "11"}]}),
        ({**TASK, "ArrayTaskID": "1,3,..."}, {}),
        ({**TASK, "ArrayTaskID": "3 13"}, {}),
        ({**TASK, "ArrayJobID": "7,13"}, {}),
        ({**COMPONENT, "HetJobID": "13 x"}, {}),
        ({**COMPONENT, "HetJobOffset": "\ufffd"}, {}),
    ],
)
def test_a_name_that_finds_anything_else_is_not_reported(
    row: dict[str, str], found: dict[str, list[dict[str, str]]]
) -> None:
    slurm = Shown({"12": [row], **found})
    with pytest.raises(SlurmError):
        slurm.requeue(12)
    assert slurm.reported == []


def test_a_job_of_another_owner_than_the_hook_s_is_left_alone() -> None:
    acts: tuple[Callable[[SlurmCommands], object], ...] = (
        lambda slurm: slurm.requeue(12),
        lambda slurm: slurm.update(12, JobChange(nice=-1)),
        lambda slurm: slurm.exact(12),
    )
    for act in acts:
        slurm = Shown({"12": [PLAIN]}, {12: 5})
        with pytest.raises(SlurmError, match="to its hook"):
            act(slurm)
        assert slurm.reported == []


@pytest.mark.parametrize("word", ["7,8", "7_[1]", "0", "-7", "٧", "7\n", "", "all"])
def test_only_an_id_is_an_id(word: str) -> None:
    with pytest.raises(SlurmError):
        exact_name({**PLAIN, "JobID": word})
    with pytest.raises(SlurmError):
        exact_name({**TASK, "ArrayJobID": word})
    if word not in ("0", ""):
        with pytest.raises(SlurmError):
            requeued_name({**COMPONENT, "HetJobID": word})
