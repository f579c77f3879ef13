from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_plugin.slurm.node.hook_env import HookJob
from slurm_plugin.slurm.node.output_files import expand, expected_outputs, may_hold_old_text, names_matter

JOB = HookJob(
    job_id=42, user_id=1000, group_id=100, user_name="ada", work_dir="/home/ada/my runs", node="n0.cluster"
)
NAMES = {"x": "train net", "A": "40", "a": "13"}


def test_without_a_name_from_the_user_it_is_slurms_own() -> None:
    assert expected_outputs(JOB, {}) == ("/home/ada/my runs/slurm-42.out",)
    assert expected_outputs(JOB, NAMES) == ("/home/ada/my runs/slurm-40_13.out",)


def test_stdout_and_stderr_may_differ() -> None:
    job = replace(JOB, stdout="/scratch/%j.out", stderr="err/%u.txt")
    assert expected_outputs(job, {}) == ("/scratch/42.out", "/home/ada/my runs/err/ada.txt")


def test_stderr_follows_stdout() -> None:
    assert expected_outputs(replace(JOB, stdout="o.%j"), {}) == ("/home/ada/my runs/o.42",)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("%x-%A_%a.out", "/home/ada/my runs/train net-40_13.out"),
        ("%5j.%N", "/home/ada/my runs/00042.n0"),
        ("100%%.txt", "/home/ada/my runs/100%.txt"),
        (r"a\%j", "/home/ada/my runs/a%j"),
        ("%b", "/home/ada/my runs/3"),
        ("%q", "/home/ada/my runs/%q"),
        ("/data/100% mine/%8 ü/%j.txt", "/data/100% mine/%8 ü/42.txt"),
    ],
)
def test_patterns(pattern: str, path: str | None) -> None:
    assert expand(pattern, JOB, NAMES) == path


def test_a_pattern_whose_meaning_is_not_known_leads_nowhere() -> None:
    assert expand("%x.out", JOB, {}) is None
    assert expand("%A", JOB, {}) == "/home/ada/my runs/42"


def test_devices_are_no_output_files() -> None:
    assert expected_outputs(replace(JOB, stdout="/dev/null"), {}) == ()


def test_slurm_is_queried_only_where_a_name_decides() -> None:
    assert names_matter(JOB), "the default differs for an array"
    assert names_matter(replace(JOB, stdout="/scratch/%x.out"))
    assert names_matter(replace(JOB, stdout="/scratch/%j.out", stderr="/scratch/%4a.err"))
    assert not names_matter(replace(JOB, stdout="/scratch/%j.%N.out"))


@pytest.mark.parametrize(
    ("stdout", "stderr", "restart", "old"),
    [
        ("", "", 0, False),
        ("", "", 1, True),
        ("/w/%j.out", "", 0, False),
        ("/w/%A_%a.out", "/w/%J.err", 0, False),
        ("/w/train.log", "", 0, True),
        ("/w/%j.out", "/w/errors.log", 0, True),
        ("/w/%A.out", "", 0, True),
        ("/w/%x_%a.out", "", 0, True),
    ],
)
def test_whose_output_may_hold_old_text(stdout: str, stderr: str, restart: int, old: bool) -> None:
    job = HookJob(job_id=7, user_id=1, group_id=1, stdout=stdout, stderr=stderr, restart=restart)
    assert may_hold_old_text(job) == old
