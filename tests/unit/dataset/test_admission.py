from __future__ import annotations

from gpumemnet.learning.dataset.running.admission import PATIENCE_S, WaitingRun, admit


def run(key: int, size: int, since: float = 0.0, alone: bool = False) -> WaitingRun:
    return WaitingRun(key=key, bytes_wanted=size, alone=alone, since_s=since)


def test_oldest_first_as_far_as_the_memory_goes() -> None:
    assert admit([run(1, 50, 1), run(2, 40, 0), run(3, 30, 2)], [], 100, 3) == [2, 1]


def test_small_runs_pass_a_large_one_for_a_while_only() -> None:
    waiting = [run(1, 90, 0), run(2, 10, 1)]
    assert admit(waiting, [60], 40, 2) == [2]
    assert admit(waiting, [60], 40, PATIENCE_S + 1) == []


def test_a_run_that_must_be_alone_waits_for_an_empty_gpu_and_keeps_it_empty() -> None:
    assert admit([run(1, 10, alone=True)], [5], 100, 1) == []
    assert admit([run(1, 10, alone=True), run(2, 10, 1)], [], 100, 1) == [1]
    assert admit([run(2, 10)], [-1], 100, 1) == []


def test_a_run_larger_than_the_gpu_starts_once_no_other_job_trains() -> None:
    assert admit([run(1, 200)], [], 100, 1) == [1]
    assert admit([run(1, 200)], [5], 100, 1) == []
