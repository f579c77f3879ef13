from __future__ import annotations

import contextlib
import signal
import time

import pytest

from slurm_plugin.core.process.time_budget import TimeIsUp, time_budget
from tests.timing import within


def test_nothing_on_the_way_keeps_the_end_of_the_time() -> None:
    def swallows() -> None:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(60)

    start_s = time.monotonic()
    with pytest.raises(TimeIsUp), time_budget(0.05):
        swallows()
    assert time.monotonic() - start_s < within(5)


def test_an_inner_budget_neither_ends_nor_lengthens_the_outer_one() -> None:
    start_s = time.monotonic()
    with pytest.raises(TimeIsUp, match=r"after 0.2 s"), time_budget(0.2):
        with pytest.raises(TimeIsUp, match=r"after 0.05 s"), time_budget(0.05):
            time.sleep(60)
        time.sleep(60)
    assert 0.2 <= time.monotonic() - start_s < within(5)


def test_what_ends_in_time_leaves_no_alarm_behind() -> None:
    with time_budget(60), time_budget(60):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_outer_budget_goes_on_where_the_inner_one_was_not_used_up() -> None:
    with time_budget(60):
        with time_budget(40):
            pass
        left_s, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 30 < left_s <= 60
