from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

import pytest
from fakes import hangs_for_good

from slurm_plugin.core.hooks.supervise import HookTimeLimits, age_s, hook_started_s, supervised
from tests.timing import within

QUICK = HookTimeLimits(work_s=within(0.8), end_s=within(1.6), least_s=within(0.4))


def now_s() -> float:
    return time.monotonic()


def test_what_ends_in_time_needs_no_rescue(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        print("export A=1")
        print("a complaint", file=sys.stderr)
        return 1

    slow = HookTimeLimits(work_s=60, end_s=60)
    assert supervised(work, lambda why: pytest.fail(why), started_s=now_s(), limits=slow) == 1
    assert capfd.readouterr() == ("export A=1\n", "a complaint\n")


@pytest.mark.parametrize("kind", ["hangs for good", "swallows every Exception", "spins", "dies", "raises"])
def test_the_rescue_follows_in_time_and_hears_why(tmp_path: Path, kind: str) -> None:
    def work() -> int:
        print("half of")
        if kind == "hangs for good":
            hangs_for_good()
        if kind == "dies":
            os._exit(0)
        if kind == "raises":
            raise ValueError("a bug")
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0 if kind == "spins" else 60)

    def rescue(why: str) -> int:
        (tmp_path / "why").write_text(why)
        return 0

    start_s = now_s()
    assert supervised(work, rescue, started_s=start_s, limits=QUICK) == 0
    assert now_s() - start_s < QUICK.end_s + within(0.5)
    words = {"dies": "ended early", "raises": "ValueError: a bug", "hangs for good": "out of time"}
    assert words.get(kind, "stopped after") in (tmp_path / "why").read_text()


def test_a_rescue_that_hangs_too_ends_in_time_with_status_0(capfd: pytest.CaptureFixture[str]) -> None:
    start_s = now_s()
    assert (
        supervised(
            hangs_for_good,
            lambda why: hangs_for_good(),
            started_s=start_s,
            limits=QUICK,
        )
        == 0
    )
    assert now_s() - start_s < QUICK.end_s + within(0.5)
    assert "out of time" in capfd.readouterr().err


def test_a_hook_whose_start_took_all_its_time_still_gets_its_least() -> None:
    def work() -> int:
        time.sleep(0.2)
        return 1

    assert (
        supervised(
            work, None, started_s=now_s() - 100, limits=HookTimeLimits(work_s=0.8, end_s=1.6, least_s=60)
        )
        == 1
    )


def test_a_process_knows_how_long_it_has_run() -> None:
    reader, writer = os.pipe()
    if os.fork() == 0:
        time.sleep(0.3)
        os.write(writer, f"{age_s()} {time.monotonic() - hook_started_s()}".encode())
        os._exit(0)
    age, reported = map(float, os.read(reader, 99).split())
    os.wait()
    assert 0.25 < age < 10
    assert abs(reported - age) < 1
