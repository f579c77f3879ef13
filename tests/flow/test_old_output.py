"""Only an OOM that this run wrote makes it run again: files that are appended to, cut, or shared by several jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from flow.test_node_hooks import Hooks

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def judged(node: Hooks, job: int, **env: str) -> str:
    """Return how the Epilog says that a job ended."""
    node.run("epilog", job, SLURM_JOB_EXIT_CODE="256", **env)
    events = [json.loads(line) for line in (node.folder / "log" / "events.jsonl").read_text().splitlines()]
    kinds = [event["event"] for event in events if event["hook"] == "epilog" and event["job"] == job]
    return next(kind for kind in reversed(kinds) if kind in ("failed", "gpu-oom", "host-oom"))


@pytest.mark.parametrize("pattern", ["train.log", "%u.log", "%A.log"])
def test_an_old_oom_in_a_log_that_is_appended_to_counts_for_no_later_job(
    tmp_path: Path, pattern: str
) -> None:
    node = Hooks(tmp_path)
    env = {"SLURM_JOB_STDOUT": f"{tmp_path}/{pattern}"}
    path = tmp_path / pattern.replace("%u", "root").replace("%A", "7")
    path.write_text("a job of last week\n" + OOM)
    node.run("prolog", 7, **env)
    with path.open("a") as file:
        file.write("epoch 1\nValueError: no such column\n")
    assert judged(node, 7, **env) == "failed"
    assert not (tmp_path / "run" / "outputs" / "7").exists()


def test_an_oom_of_this_run_counts_in_the_same_log(tmp_path: Path) -> None:
    node = Hooks(tmp_path)
    env = {"SLURM_JOB_STDOUT": f"{tmp_path}/train.log"}
    path = tmp_path / "train.log"
    path.write_text(OOM)
    node.run("prolog", 7, **env)
    with path.open("a") as file:
        file.write(OOM)
    assert judged(node, 7, **env) == "gpu-oom"


def test_a_log_that_slurm_cut_counts_as_a_whole_even_if_it_says_the_same(tmp_path: Path) -> None:
    node = Hooks(tmp_path)
    env = {"SLURM_JOB_STDOUT": f"{tmp_path}/train.log"}
    path = tmp_path / "train.log"
    path.write_text(OOM)
    os.utime(path, ns=(1, 1))
    node.run("prolog", 7, **env)
    path.write_text(OOM)
    assert judged(node, 7, **env) == "gpu-oom"


def test_a_requeued_run_that_appends_is_judged_by_its_own_words(tmp_path: Path) -> None:
    node = Hooks(tmp_path)
    path = tmp_path / "slurm-7.out"
    node.run("prolog", 7)
    path.write_text(OOM)
    assert judged(node, 7) == "gpu-oom"
    again = {"SLURM_JOB_RESTART_COUNT": "1"}
    node.run("prolog", 7, **again)
    with path.open("a") as file:
        file.write("ValueError\n")
    assert judged(node, 7, **again) == "failed"


def test_two_files_are_distinguished(tmp_path: Path) -> None:
    node = Hooks(tmp_path)
    env = {"SLURM_JOB_STDOUT": f"{tmp_path}/out.log", "SLURM_JOB_STDERR": f"{tmp_path}/err.log"}
    (tmp_path / "out.log").write_text(OOM)
    (tmp_path / "err.log").write_text(OOM)
    node.run("prolog", 7, **env)
    with (tmp_path / "err.log").open("a") as file:
        file.write("CUDA out of memory.\n")
    assert judged(node, 7, **env) == "gpu-oom"


def test_a_user_who_swaps_the_file_only_makes_all_of_it_count(tmp_path: Path) -> None:
    node = Hooks(tmp_path)
    env = {"SLURM_JOB_STDOUT": f"{tmp_path}/train.log"}
    os.mkfifo(tmp_path / "train.log")
    node.run("prolog", 7, **env)
    (tmp_path / "train.log").unlink()
    (tmp_path / "train.log").write_text(OOM)
    assert judged(node, 7, **env) == "gpu-oom"
