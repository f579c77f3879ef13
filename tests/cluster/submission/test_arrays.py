"""What happens to one task of an array happens to that task alone.

Slurm gives the task that starts last the array's own id, and that id means every task: those that run and those
that have ended (scontrol(1), "job_list").
"""

from __future__ import annotations

import pytest

from lab.jobs import Jobs
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import JobChange

pytestmark = pytest.mark.cluster

ENDS, STAYS, GROWS = "0", "1", "2"
TRAINS = "python3 fake_train.py --memory 3.8G,30G --seconds 3"
TASKS = f"case $SLURM_ARRAY_TASK_ID in {ENDS}) ;; {STAYS}) sleep 600 ;; {GROWS}) {TRAINS} ;; esac"
"""One line: 26.05 shows it as a part of the job's record, whose lines tell jobs apart."""


def array(jobs: Jobs, wrap: str = TASKS) -> int:
    """Submit an array of three tasks whose last one has the array's id."""
    return jobs.accepted("--gpus=1", "--comment=rad:memory=4G", "--array=0-2", "--wrap", wrap)


def tasks(jobs: Jobs, array_id: int) -> dict[str, dict[str, str]]:
    """Return the properties of an array's tasks, by task id."""
    rows = jobs.all_fields().values()
    return {row["ArrayTaskId"]: row for row in rows if row.get("ArrayJobId") == str(array_id)}


def test_one_task_that_runs_out_of_memory_runs_again_alone(jobs: Jobs) -> None:
    array_id = array(jobs)
    jobs.cluster.wait(
        "the task that grew has run again",
        lambda: (
            tasks(jobs, array_id).get(GROWS, {}).get("Restarts") == "1"
            and tasks(jobs, array_id)[GROWS]["JobState"] == "COMPLETED"
        ),
        90,
    )
    seen = tasks(jobs, array_id)
    assert seen[GROWS]["JobId"] == str(array_id), "this is the task that has the array's id"
    assert (seen[ENDS]["JobState"], seen[ENDS]["Restarts"]) == ("COMPLETED", "0")
    assert (seen[STAYS]["JobState"], seen[STAYS]["Restarts"]) == ("RUNNING", "0")
    assert "memory" in seen[GROWS]["AdminComment"]
    assert "out of" not in seen[STAYS].get("AdminComment", "") + seen[ENDS].get("AdminComment", "")
    assert seen[STAYS]["TresPerNode"] == seen[ENDS]["TresPerNode"] != seen[GROWS]["TresPerNode"]


def test_whatever_is_said_of_an_id_holds_for_one_task(jobs: Jobs) -> None:
    array_id = array(jobs, wrap="sleep 600")
    jobs.cluster.wait(
        "all tasks run",
        lambda: [row["JobState"] for row in tasks(jobs, array_id).values()] == 3 * ["RUNNING"],
        60,
    )
    slurm = SlurmCommands(slurm_conf=str(jobs.cluster.place.slurm_conf), timeout_s=10)
    slurm.update(array_id, JobChange(admin_comment="only this one"))
    assert [row.get("AdminComment", "") == "only this one" for row in tasks(jobs, array_id).values()].count(
        True
    ) == 1
    assert slurm.given(array_id) != ""
    slurm.requeue(array_id)
    restarts = {task: row["Restarts"] for task, row in tasks(jobs, array_id).items()}
    assert restarts == {ENDS: "0", STAYS: "0", GROWS: "1"}
