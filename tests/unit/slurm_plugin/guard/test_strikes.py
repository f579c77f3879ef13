"""A violation is acted on when two samples agree, and not over and over."""

from __future__ import annotations

from dataclasses import replace

from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.units import GIB
from slurm_plugin.guard.strikes import Key, Strike, confirmed
from slurm_plugin.guard.violation import Violation

OVER = Violation(
    kind="memory",
    gpu="GPU-a",
    job_id=1,
    user_id=1001,
    used_bytes=9 * GIB,
    limit_bytes=4 * GIB,
    free_bytes=GIB,
    processes=(Process(pid=11, started_ticks=1),),
    response="requeue",
)


def play(*samples: tuple[float, tuple[Violation, ...]]) -> list[int]:
    """Return how many violations are handed on at each sample."""
    strikes: dict[Key, Strike] = {}
    handed = []
    for now_s, found in samples:
        strikes, sure = confirmed(found, strikes, now_s=now_s)
        handed.append(len(sure))
    return handed


def test_the_second_sample_decides():
    assert play((0, (OVER,)), (1, (OVER,)), (2, (OVER,))) == [0, 1, 0]


def test_taking_and_giving_back_in_turns_helps_no_job():
    assert play((0, (OVER,)), (1, ()), (2, (OVER,))) == [0, 0, 1]


def test_two_samples_far_apart_are_no_agreement():
    assert play((0, (OVER,)), (60, (OVER,))) == [0, 0]


def test_a_job_whose_processes_change_is_the_same_job():
    other = replace(OVER, processes=(Process(pid=12, started_ticks=1),))
    assert play((0, (OVER,)), (1, (other,))) == [0, 1]


def test_another_run_begins_again():
    assert play((0, (OVER,)), (1, (replace(OVER, restart=1),))) == [0, 0]


def test_a_job_that_does_not_stop_is_warned_again_but_a_warning_is_logged_once():
    assert play((0, (OVER,)), (1, (OVER,)), (3, (OVER,)), (6, (OVER,))) == [0, 1, 0, 1]
    warned = replace(OVER, response="warn")
    assert play((0, (warned,)), (1, (warned,)), (6, (warned,)), (12, (warned,))) == [0, 1, 0, 0]


def test_unmanaged_processes_are_distinguished():
    one = replace(OVER, kind="unmanaged", job_id=None, response="warn")
    other = replace(one, processes=(Process(pid=12, started_ticks=1),))
    assert play((0, (one, other)), (1, (one, other))) == [0, 2]


def test_a_warned_job_that_must_go_is_informed_at_once():
    """It had up to five seconds more, in which its neighbours ran out of memory."""
    warned = replace(OVER, response="warn")
    assert play((0, (warned,)), (1, (warned,)), (2, (OVER,)), (3, (OVER,)), (7, (OVER,))) == [0, 1, 1, 0, 1]
    assert play((0, (OVER,)), (1, (OVER,)), (2, (warned,)), (3, (OVER,))) == [0, 1, 0, 0]
