"""Threads of daemons outlive their own bugs."""

from __future__ import annotations

import logging

import pytest

from slurm_plugin.core.process.background import in_background
from tests.timing import within

LOG = logging.getLogger("radd")


def test_work_goes_on_round_after_round_until_it_says_no():
    rounds: list[int] = []

    def once() -> bool:
        rounds.append(len(rounds))
        return len(rounds) < 3

    in_background("worker", once, log=LOG).join(timeout=within(10))
    assert rounds == [0, 1, 2]


def test_a_bug_in_one_round_is_reported_and_the_next_one_comes(caplog: pytest.LogCaptureFixture):
    rounds = iter([ZeroDivisionError("bug"), RuntimeError("another"), None])

    def once() -> bool:
        wrong = next(rounds)
        if wrong is not None:
            raise wrong
        return False

    thread = in_background("worker", once, log=LOG, pause_s=0.0)
    thread.join(timeout=within(10))
    assert not thread.is_alive() and thread.daemon
    assert [record.getMessage() for record in caplog.records] == [
        "internal error in worker, which continues"
    ] * 2
    assert [record.exc_info and repr(record.exc_info[1]) for record in caplog.records] == [
        "ZeroDivisionError('bug')",
        "RuntimeError('another')",
    ]
