from __future__ import annotations

import pytest

from slurm_plugin.core.booking.step_environment import script_variables, task_variables
from slurm_plugin.core.records.submission import RequestedTasks

SCRIPT = {
    "SLURM_NTASKS": "2",
    "SLURM_NPROCS": "2",
    "SLURM_TASKS_PER_NODE": "2",
    "SLURM_SHARDS_ON_NODE": "20",
    "SLURM_TRES_PER_TASK": "gres/shard:10",
}
ONE = {"SLURM_NTASKS": "1", "SLURM_NPROCS": "1", "SLURM_TASKS_PER_NODE": "1"}


@pytest.mark.parametrize(
    ("requested", "script", "changes"),
    [
        (RequestedTasks(), {}, {**ONE, "SLURM_STEP_GRES": "gres/shard:20", "cpus": None, "per_task": None}),
        (
            RequestedTasks(cpus=3),
            {"SLURM_TRES_PER_TASK": "cpu=2,gres/shard:10", "SLURM_CPUS_PER_TASK": "2"},
            {**ONE, "SLURM_STEP_GRES": "gres/shard:20", "cpus": "3", "per_task": "cpu=3"},
        ),
        (
            RequestedTasks(tasks=2, own_gpu=True),
            {},
            {"SLURM_TRES_BIND": "gres/shard:per_task:10", "cpus": None, "per_task": "gres/shard:10"},
        ),
    ],
)
def test_a_batch_script_has_the_tasks_that_its_user_requested(
    requested: RequestedTasks, script: dict[str, str], changes: dict[str, str | None]
) -> None:
    expected = {"SLURM_CPUS_PER_TASK": changes.pop("cpus"), "SLURM_TRES_PER_TASK": changes.pop("per_task")}
    found = script_variables(task_variables(requested), {**SCRIPT, **script})
    assert {**dict.fromkeys(ONE, str(requested.tasks)), **changes, **expected} == found


def test_a_job_that_slurm_was_informed_of_as_it_is_keeps_its_variables() -> None:
    assert task_variables(None) == {} and script_variables({}, SCRIPT) == {}
