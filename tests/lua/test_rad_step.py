"""An srun inside a job whose GPU became shards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lua.lua_programs import VERSIONS
from lua.test_rad_cli import CliFilter

WHOLE = {"SLURM_JOB_ID": "7", "RAD_JOB": "7", "RAD_KIND": "whole", "RAD_SHARDS": "39", "RAD_GPU_INDICES": "2"}
SHARED = {**WHOLE, "RAD_KIND": "shared", "RAD_SHARDS": "6"}
PAIR = {**SHARED, "RAD_SHARDS": "12", "RAD_GPU_INDICES": "0,1"}
ONE_OF_PAIR = {"gres": "", "tres-per-task": "gres/shard:6", "tres-bind": "gres/shard:per_task:6"}
OLD_SRUN = "#!/bin/sh\necho slurm-wlm 22.05.8\n"
NEW_SRUN = "#!/bin/sh\necho slurm 24.11.5\n"


@pytest.fixture(params=VERSIONS)
def lua(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Steps:
    """sruns of a job, with stand-ins for squeue and srun; lua-posix is out of the way."""

    def __init__(self, lua: str, folder: Path) -> None:
        self._lua, self._folder = lua, folder
        self.program("srun", OLD_SRUN)
        self.program("squeue", "#!/bin/sh\nexit 1\n")

    def program(self, name: str, text: str) -> None:
        path = self._folder / name
        path.write_text(text)
        path.chmod(0o755)

    def queue(self, tasks: int, per_node: str = "N/A", per_task: str = "N/A") -> None:
        """Let squeue say of the job what its fixed columns would, and note that it was queried."""
        line = f"{tasks:<16}{per_node:<256}{per_task:<256}"
        self.program("squeue", f"#!/bin/sh\necho asked \"$@\" >>'{self._folder}/asked'\necho '{line}'\n")

    def slurm_was_queried(self) -> bool:
        return (self._folder / "asked").exists()

    def options(self, env: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
        path = {"PATH": f"{self._folder}:{os.environ['PATH']}", "LUA_PATH": "?.lua", "LUA_CPATH": "none"}
        cli = CliFilter(self._lua, self._folder, env={**path, **env})
        try:
            answer = cli.submit({"type": "srun", **options})
        finally:
            cli.program.close()
        assert answer["rc"] == 0 and not answer["said"]
        found: dict[str, Any] = {name: value for name, value in answer["options"].items() if name != "type"}
        return found


@pytest.fixture
def steps(lua: str, tmp_path: Path) -> Steps:
    return Steps(lua, tmp_path)


@pytest.mark.parametrize(
    ("env", "requested", "becomes"),
    [
        (WHOLE, {}, {}),
        (WHOLE, {"gres": "gpu:1"}, {"gres": "shard:39"}),
        (WHOLE, {"gres": "gpu"}, {"gres": "shard:39"}),
        (WHOLE, {"gres": "gpu:a100:1"}, {"gres": "shard:39"}),
        (WHOLE, {"gres": "gres:gpu:1,nvme:3"}, {"gres": "nvme:3,shard:39"}),
        (WHOLE, {"gres": "gpu:0"}, {"gres": "gpu:0"}),
        (WHOLE, {"gres": "none"}, {"gres": "none"}),
        (WHOLE, {"gres": "none", "gpus": "1"}, {"gres": "none", "gpus": ""}),
        (
            WHOLE,
            {"gres": "none", "gpus": "2", "mem-per-gpu": "4G"},
            {"gres": "none", "gpus": "", "mem-per-gpu": "4G"},
        ),
        (WHOLE, {"gres": "gpu:0", "gpus": "1"}, {"gres": "shard:39", "gpus": ""}),
        (WHOLE, {"gres": "shard:3"}, {"gres": "shard:3"}),
        (WHOLE, {"gpus": "1"}, {"gpus": "", "gres": "shard:39"}),
        (WHOLE, {"gpus": "a100:1"}, {"gpus": "", "gres": "shard:39"}),
        (WHOLE, {"gpus": "2"}, {"gpus": "2"}),
        (WHOLE, {"gres": "gpu:2"}, {"gres": "gpu:2"}),
        (WHOLE, {"gpus-per-node": "1"}, {"gpus-per-node": "", "gres": "shard:39"}),
        (WHOLE, {"gpus-per-socket": "1"}, {"gpus-per-socket": "", "gres": "shard:39"}),
        (
            WHOLE,
            {"gpus-per-task": "1"},
            {"gpus-per-task": "", "gres": "shard:39", "gpu-bind": "single:1"},
        ),
        (WHOLE, {"gpus-per-task": "1", "ntasks": "2"}, {"gpus-per-task": "1", "ntasks": "2"}),
        (WHOLE, {"tres-per-task": "cpu:2,gres/gpu:1"}, {"tres-per-task": "cpu:2", "gres": "shard:39"}),
        (SHARED, {"gres": "gpu:1", "ntasks": "4"}, {"gres": "shard:6", "ntasks": "4"}),
        (SHARED, {"mem-per-gpu": "4G"}, {"mem-per-gpu": "0"}),
        (
            SHARED,
            {"cpus-per-gpu": "8", "gpus": "1", "ntasks": "2"},
            {
                "cpus-per-gpu": "4294967296",
                "cpus-per-task": "4",
                "gpus": "",
                "gres": "shard:6",
                "ntasks": "2",
            },
        ),
        (SHARED, {"ntasks-per-gpu": "2"}, {"ntasks-per-gpu": "4294967294", "ntasks": "2"}),
        (PAIR, {"gpus": "2"}, {"gpus": "", "gres": "shard:12"}),
        (
            PAIR,
            {"gres": "gpu:1"},
            ONE_OF_PAIR,
        ),
        (PAIR, {"gres": "gpu:1", "gpus": "2"}, ONE_OF_PAIR | {"gpus": ""}),
        (PAIR, {"gres": "gpu:2", "gpus": "1"}, {"gres": "shard:12", "gpus": ""}),
        (PAIR, {"gres": "gpu:0", "gpus": "2"}, {"gres": "shard:12", "gpus": ""}),
        (PAIR, {"gpus": "1", "gpus-per-node": "2"}, ONE_OF_PAIR | {"gpus": "", "gpus-per-node": ""}),
        (PAIR, {"gpus": "2", "gpus-per-node": "1"}, ONE_OF_PAIR | {"gpus": "", "gpus-per-node": ""}),
        (PAIR, {"gpus-per-socket": "1"}, {"gpus-per-socket": "", "gres": "shard:12"}),
        (PAIR, {"gres": "gpu:1", "ntasks": "2"}, {"gres": "shard:6", "ntasks": "2"}),
        (
            PAIR,
            {"gpus-per-task": "1", "ntasks": "2"},
            {
                "gpus-per-task": "",
                "gres": "",
                "ntasks": "2",
                "tres-per-task": "gres/shard:6",
                "tres-bind": "gres/shard:per_task:6",
            },
        ),
        ({**WHOLE, "RAD_SHARDS": "0"}, {"gres": "gpu:1"}, {"gres": "gpu:1"}),
        ({**WHOLE, "SLURM_HET_SIZE": "2"}, {"gres": "gpu:1"}, {"gres": "gpu:1"}),
    ],
)
def test_a_step_gets_its_jobs_shards_for_gpus(
    steps: Steps, env: dict[str, str], requested: dict[str, str], becomes: dict[str, str]
) -> None:
    assert steps.options(env, requested) == becomes
    assert not steps.slurm_was_queried()


@pytest.mark.parametrize(
    ("queued", "gres"),
    [
        ((1, "gres:shard:39"), "shard:39"),
        ((1, "gres/shard:39"), "shard:39"),
        ((4, "gres/shard=39"), "shard:39"),
        ((1, "gres/nvme:3,gres/shard:a100:5"), "shard:5"),
        ((1, "N/A", "cpu=1,gres/shard:8"), "shard:8"),
        ((2, "N/A", "gres/shard:8"), ""),  # of a task: "gres/shard:8"
        ((1, "gres/gpu:1"), "gpu:1"),
        ((1, "gres:gpu:0,gres:shard:39"), "shard:39"),
    ],
)
@pytest.mark.parametrize("where", [{}, {"SLURM_JOB_ID": "8", "RAD_JOB": "8"}, {"RAD_JOB": "6"}])
def test_from_a_shell_next_to_the_job_slurm_is_queried(
    steps: Steps, where: dict[str, str], queued: tuple[Any, ...], gres: str
) -> None:
    steps.queue(*queued)
    assert steps.options({"SLURM_JOB_ID": "7", **where}, {"gres": "gpu:1", "jobid": "7"})["gres"] == gres
    assert steps.slurm_was_queried()


def test_a_task_that_slurm_shows_of_no_shards_costs_no_question(steps: Steps) -> None:
    steps.queue(1, "gres:shard:39")
    env = {"SLURM_JOB_ID": "7", "SLURM_TASK_PID": "100"}
    assert steps.options(env, {"gres": "gpu:1"}) == {"gres": "gpu:1"}
    assert not steps.slurm_was_queried()


def test_no_word_of_a_user_reaches_the_shell(steps: Steps, tmp_path: Path) -> None:
    steps.queue(1, "gres:shard:39")
    for job_id in ("7; touch x", "$(touch x)", "7 -u root", ""):
        steps.options({"SLURM_JOB_ID": job_id}, {"gres": "gpu:1"})
    assert not steps.slurm_was_queried() and not (tmp_path / "x").exists()


def test_without_lua_posix_a_newer_slurm_refuses_what_cannot_be_taken_back(steps: Steps) -> None:
    steps.program("srun", NEW_SRUN)
    found = steps.options(SHARED, {"cpus-per-gpu": "2", "gpus": "1"})
    assert found["cpus-per-gpu"] == "2", "no value of it means 'not given' there"
