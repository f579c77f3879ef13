"""A run that a user ended too early does not show what its model needs; Slurm shows its Epilog exit status 0."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from flow.test_node_hooks import SHARED, Hooks

from lab.bare_node import comment_of
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.window import JobUsage, write_job

CANCELLED = "slurmstepd-n0: error: *** JOB 7 ON n0 CANCELLED AT 2026-11-22T22:46:41 DUE TO TIME LIMIT ***\n"


def test_nor_is_the_owner_of_a_job_without_a_model_informed_that_less_is_enough(tmp_path: Path) -> None:
    """`rad report` and the line in his output say so of runs that ended well alone."""
    node = Hooks(tmp_path)
    comment = comment_of(replace(SHARED, profile_key=None, basis="requested"))
    ended = remembered(node, "loading\n" + CANCELLED, used_gib=0.5, steady_s=90, SLURM_JOB_COMMENT=comment)
    assert ended == ("cancelled", False)


def remembered(node: Hooks, said: str, *, used_gib: float, steady_s: int, **env: str) -> tuple[str, bool]:
    """Return how a job ended that printed this, and whether its peak counts as its model's need."""
    node.run("prolog", 7, **{name: value for name, value in env.items() if name != "SLURM_JOB_RESTART_COUNT"})
    now_s = SystemClock().now_s()
    usage = JobUsage(
        job_id=7,
        first_s=now_s - 100,
        last_s=now_s,
        peak_bytes=int(used_gib * GIB),
        samples=100,
        steady_samples=steady_s,
    )
    write_job(node.folder / "run", usage)
    (node.folder / "slurm-7.out").write_text(said)
    node.run("epilog", 7, SLURM_JOB_EXIT_CODE="0", **env)
    (line,) = (node.folder / "state" / "peaks.jsonl").read_text().splitlines()
    row = json.loads(line)
    return row["outcome"], "profile" in row


@pytest.mark.parametrize(
    ("said", "used_gib", "steady_s", "env", "expected"),
    [
        ("epoch 1\n" + CANCELLED, 2.0, 5, {}, ("cancelled", False)),
        ("loading\n" + CANCELLED, 0.5, 90, {}, ("cancelled", False)),
        ("epoch 1\n", 2.0, 5, {"SLURM_JOB_RESTART_COUNT": "1"}, ("cancelled", False)),
        ("epoch 1\n", 2.0, 5, {}, ("ok", True)),
        ("epoch 9\n" + CANCELLED, 2.0, 90, {}, ("ok", True)),
    ],
    ids=[
        "while it grew",
        "before it began",
        "requeued by others",
        "by itself",
        "in the midst of its training",
    ],
)
def test_only_a_run_that_came_to_its_peak_shows_a_need(
    tmp_path: Path, said: str, used_gib: float, steady_s: int, env: dict[str, str], expected: tuple[str, bool]
) -> None:
    assert remembered(Hooks(tmp_path), said, used_gib=used_gib, steady_s=steady_s, **env) == expected
