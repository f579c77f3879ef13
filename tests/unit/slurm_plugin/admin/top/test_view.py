"""What `rad top` shows, and what keys do to it."""

from __future__ import annotations

import dataclasses
import os
import pty
import select
import struct
import time
from fcntl import ioctl
from termios import TIOCSWINSZ

import pytest
from golden_texts import Golden
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.admin.top.fleet import Fleet, NodeAnswer, totals
from slurm_plugin.admin.top.frame import as_text, frame
from slurm_plugin.admin.top.screens import SCREENS
from slurm_plugin.admin.top.view import View, after, rows_of
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.export.status import GpuStatus, Happened, JobStatus, NodeStatus
from slurm_plugin.slurm.queries.queue import WaitingJob
from tests.timing import within

NOW_S = 1_772_366_400.0


def job(job_id: int, user_id: int, *, used_gib: float, booked_gib: int, kind: str = "shared") -> JobStatus:
    return JobStatus(
        job_id=job_id,
        user_id=user_id,
        kind=kind,
        booked_bytes=booked_gib * GIB,
        estimate_bytes=None if kind == "whole" else (booked_gib - 2) * GIB,
        used_bytes=int(used_gib * GIB),
        peak_bytes=int((used_gib + 1) * GIB),
        smact=0.25,
    )


def gpu(index: int, *jobs: JobStatus, smact: float | None = 0.5, state: str = "ok") -> GpuStatus:
    return GpuStatus(
        index=index,
        uuid=f"GPU-{index}",
        name="H100",
        state=state,
        usable_bytes=140 * GIB,
        used_bytes=sum(one.used_bytes or 0 for one in jobs),
        booked_bytes=sum(one.booked_bytes for one in jobs),
        unmanaged_bytes=0,
        smact=smact,
        smact_source="nvml-gpm",
        averaged=True,
        jobs=jobs,
    )


FLEET = Fleet(
    time_s=NOW_S,
    nodes=(
        NodeAnswer(
            name="gpu1",
            status=NodeStatus(
                host="gpu1",
                time_s=NOW_S,
                gpus=(
                    gpu(
                        0, job(7, 1000, used_gib=31, booked_gib=48), job(8, 1001, used_gib=9.5, booked_gib=12)
                    ),
                    gpu(1, job(9, 1000, used_gib=130, booked_gib=140, kind="whole"), smact=0.97),
                ),
                happened=(
                    Happened(time_s=NOW_S - 60, job_id=7, event="gpu-oom"),
                    Happened(time_s=NOW_S - 59, job_id=7, event="runs again"),
                ),
            ),
        ),
        NodeAnswer(
            name="gpu2",
            status=NodeStatus(host="gpu2", time_s=NOW_S, gpus=(gpu(0, smact=None, state="unhealthy"),)),
        ),
        NodeAnswer(name="gpu3", trouble="no answer in 1 s"),
    ),
    waiting=(
        WaitingJob(
            job_id=11,
            user_id=1001,
            partition="gpu",
            gres="gres/shard:12",
            reason="Resources",
            priority=100,
            restarts=1,
            submit_s=NOW_S - 3700,
        ),
    ),
    users={1000: "alice", 1001: "bob"},
)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_sums_count_each_job_once_and_what_sharing_saves():
    sums = totals(FLEET)
    assert (sums.nodes, sums.silent, sums.gpus, sums.busy, sums.jobs, sums.saved) == (2, 1, 3, 2, 3, 1)
    assert sums.smact == pytest.approx((0.5 + 0.97) / 2), "a GPU that reports nothing does not count as idle"


@pytest.mark.parametrize("number", range(len(SCREENS)))
def test_the_screens(number: int, golden: Golden):
    shown = as_text(frame(FLEET, View(screen=number), width=120, height=14))
    golden(f"top/{SCREENS[number].name.lower()}.txt", shown)


def test_what_does_not_fit_its_column_ends_with_a_sign():
    shown = as_text(frame(FLEET, View(), width=80, height=14)).splitlines()
    assert shown[5].endswith("+") and len(shown[5]) == 80
    assert not any(
        line.endswith("+") for line in as_text(frame(FLEET, View(), width=120, height=14)).splitlines()
    )


def test_a_fleet_of_nothing_is_shown():
    for number, screen in enumerate(SCREENS):
        assert screen.empty in as_text(frame(Fleet(time_s=0.0), View(screen=number), width=80, height=24))


def pressed(*keys: str, view: View | None = None) -> View:
    view = view or View()
    for key in keys:
        view = after(view, key, rows_of(FLEET, view), page=5)
    return view


def cells(view: View, column: int = 0) -> list[object]:
    return [row.cells[column] for row in rows_of(FLEET, view)]


def test_a_filter_and_a_user_leave_the_others_out():
    assert cells(pressed("2")) == ["9", "8", "7"]
    assert cells(pressed("2", "F4", "b", "o", "b", "Enter")) == ["8"]
    assert cells(pressed("2", "F4", "b", "o", "b", "Esc")) == ["9", "8", "7"]
    assert cells(pressed("2", "u")) == ["9", "7"], "the chosen row's user is alice"
    assert cells(pressed("2", "Down", "u")) == ["8"]
    assert cells(pressed("2", "u", "u")) == ["9", "8", "7"]


def test_sorting_by_memory_activity_and_the_other_way_round():
    assert cells(pressed("2", "M")) == ["9", "7", "8"]
    assert cells(pressed("2", "M", "I")) == ["8", "7", "9"]
    assert rows_of(FLEET, pressed("P"))[0].cells[:2] == ("gpu1", "1")
    assert pressed("<").sort[0] == len(SCREENS[0].columns) - 1


def test_a_search_chooses_the_next_match_and_goes_round():
    view = pressed("2", "N", "I", "/", "a", "l", "i", "c", "e", "Enter")
    first = view.selected
    second = pressed("F3", view=view).selected
    assert first != second
    assert pressed("F3", view=pressed("F3", view=view)).selected == first


def test_the_end_the_help_and_the_held_screen():
    assert pressed("q").ended
    assert pressed("F10").ended
    assert not pressed("F4", "q").ended, "a letter of a filter is a letter"
    assert pressed("h").helping
    assert not pressed("h", "x").helping
    assert pressed("Z").paused
    assert "end" in as_text(frame(FLEET, pressed("F1"), width=100, height=30))


KEYS = [
    "Up",
    "Down",
    "PgUp",
    "PgDn",
    "Home",
    "End",
    "Tab",
    "BackTab",
    "Enter",
    "Esc",
    "Backspace",
    "F1",
    "F3",
]
KEYS += ["F4", "F6", *"12345uMPNIZqh/\\<>?b0\x00ä", "F12"]


@given(
    keys=st.lists(st.sampled_from(KEYS), max_size=30),
    width=st.integers(1, 250),
    height=st.integers(1, 60),
    notice=st.sampled_from(["", "rad.toml:2: no such key\nhere"]),
)
def test_whatever_is_typed_the_frame_fits_the_terminal(keys: list[str], width: int, height: int, notice: str):
    view = View(notice=notice)
    for key in keys:
        view = after(view, key, rows_of(FLEET, view), page=3)
    lines = frame(FLEET, view, width=width, height=height)
    assert len(lines) <= height
    assert all(sum(len(text) for text, _ in line) <= width for line in lines)
    assert all(text.isprintable() for line in lines for text, _ in line)


def test_what_another_machine_says_cannot_write_to_the_terminal():
    evil = dataclasses.replace(
        FLEET,
        waiting=(dataclasses.replace(FLEET.waiting[0], reason="\x1b[2Jboo", partition="a\nb"),),
    )
    text = as_text(frame(evil, View(screen=3), width=120, height=12))
    assert "\x1b" not in text
    assert "?[2Jboo" in text


def test_it_runs_on_a_real_terminal_and_ends_at_q():
    child, terminal = pty.fork()
    if child == 0:
        status = 1
        try:
            os.environ["TERM"] = "xterm-256color"
            ioctl(0, TIOCSWINSZ, struct.pack("4H", 30, 140, 0, 0))
            from slurm_plugin.admin.top.terminal import watch

            watch(lambda: FLEET, every_s=0.2, view=View(notice="rad.toml:2: no such key"))
            status = 0
        finally:
            os._exit(status)
    seen = b""
    deadline_s = time.monotonic() + within(30)
    requested = False
    while time.monotonic() < deadline_s:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                seen += os.read(terminal, 1 << 16)
            except OSError:
                break
        if b"alice" in seen and not requested:
            os.write(terminal, b"2q")
            requested = True
    assert requested, seen
    assert b"rad.toml:2: no such key" in seen
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
