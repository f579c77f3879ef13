"""What is reported of one job, from what was found."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from golden_texts import Golden

from slurm_plugin.admin.job_report.report import JobFacts, report_of, slowdown_of
from slurm_plugin.admin.job_report.text import as_json, as_text
from slurm_plugin.core.comments.admin_comment import Note, format_note
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.history.models import Model
from slurm_plugin.core.history.runs import Run
from slurm_plugin.core.logs.events import Entry, EventKind, LogEvent
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB
from slurm_plugin.slurm.queries.columns import cut
from slurm_plugin.slurm.queries.job_times import _SACCT, _SQUEUE, JobTimes, _of_squeue, parse_sacct

START_S = 1_772_366_400.0
USER = 4_000_000_000  # no machine has a name for it


def run_of(job_id: int, first_s: float, last_s: float, **more: object) -> Run:
    run = Run(
        user_id=USER,
        job_id=job_id,
        restart=0,
        start_s=START_S + first_s,
        time_s=START_S + last_s,
        outcome="ok",
        peak_bytes=9 * GIB,
        booked_bytes=12 * GIB,
        estimate_bytes=10 * GIB,
        mean_smact=0.41,
        p95_smact=0.6,
        energy_j=123456.0,
        profile_key="ab12",
        node="gpu1",
        gpus=("GPU-a",),
    )
    return replace(run, **more)  # type: ignore[arg-type]


FOUND = JobFacts(
    job_id=7,
    times=JobTimes(
        job_id=7,
        user_id=USER,
        state="COMPLETED",
        partition="gpu",
        nodes="gpu1",
        requested="gres/shard:12",
        comment="",
        restarts=1,
        submit_s=START_S - 3700,
        start_s=START_S,
        end_s=START_S + 3600,
    ),
    booking=Booking(
        kind="shared",
        memory_bytes=12 * GIB,
        cap_bytes=14 * GIB,
        estimate_bytes=10 * GIB,
        smact=0.45,
        basis="estimate",
        profile_key="ab12",
    ),
    runs=(
        run_of(7, -4000, -3900, restart=0, outcome="gpu-oom", profile_key=None, peak_bytes=12 * GIB),
        run_of(8, -1000, 1800),
        run_of(9, 3000, 9000, mean_smact=None),
        run_of(10, 0, 3600, gpus=("GPU-b",)),
        run_of(7, 0, 3600, restart=1),
        run_of(7, 0, 3600, restart=1),
    ),
    models={
        (USER, "ab12"): Model(
            profile="ab12",
            user=USER,
            time_s=START_S,
            name="resnet50",
            family="cnn",
            parameters=25557032,
            batch_size=64,
            optimizer="adam",
            precision="amp",
            text="p4.0.1",
        )
    },
    events=(
        Entry(
            time_s=START_S,
            hook="prolog",
            job_id=7,
            restart=1,
            after_ms=40,
            event=LogEvent(kind=EventKind.PLACED, detail="booking shared: GPU-a magm: 120.1 GiB free"),
        ),
        Entry(
            time_s=START_S,
            hook="prolog",
            job_id=7,
            restart=1,
            after_ms=41,
            event=LogEvent(kind=EventKind.END),
        ),
    ),
    missing=("events: not here",),
)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_the_page(golden: Golden):
    golden("job_report.txt", as_text(report_of(FOUND)))


def test_runs_neighbours_and_what_no_sample_saw():
    report = report_of(FOUND)
    assert [one.run.outcome for one in report.runs] == ["gpu-oom", "ok"], (
        "an Epilog that ran twice is one run"
    )
    first, last = report.runs
    assert not first.neighbours
    assert [(one.job_id, one.together_s) for one in last.neighbours] == [(8, 1800), (9, 600)]
    assert report.waited_s == 3700
    assert json.loads(as_json(report))["runs"][1]["neighbours"][0]["job_id"] == 8


@pytest.mark.parametrize(
    ("note", "line"),
    [
        (
            Note(event="recovered", restart=1, peak_bytes=12 * GIB, detail="out of GPU memory, requeued"),
            "note       recovered: peak 12.0 GiB, out of GPU memory, requeued",
        ),
        (
            Note(event="ended", restart=1, peak_bytes=9 * GIB, smact=0.41),
            "note       ended: peak 9.0 GiB, SM activity 0.41",
        ),
        (Note(event="booked", restart=0, detail="12 GiB"), None),
    ],
)
def test_slurms_note_stands_for_a_run_that_is_recorded_elsewhere(note: Note, line: str | None):
    assert FOUND.times is not None
    elsewhere = replace(FOUND, runs=(), times=replace(FOUND.times, admin_comment=format_note(note)))
    lines = as_text(report_of(elsewhere)).splitlines()
    assert [one for one in lines if one.startswith("note")] == [line] * (line is not None)
    assert "requeued   1 time" in lines
    assert "note" not in as_text(report_of(replace(elsewhere, runs=FOUND.runs)))


def test_a_job_of_which_nothing_is_known():
    report = report_of(JobFacts(job_id=5, missing=("Slurm: it is away",)))
    assert (report.user_id, report.runs, report.advice, report.waited_s) == (None, (), (), None)
    assert not report.known and report_of(FOUND).known
    assert as_text(report).splitlines() == ["Job 5", "not seen   Slurm: it is away"]
    assert json.loads(as_json(report))["slurm"] is None


def test_what_a_job_calls_itself_cannot_write_to_the_terminal():
    assert FOUND.times is not None
    evil = replace(FOUND, times=replace(FOUND.times, requested="\x1b[2J"), missing=("\x1b[2J",))
    assert "\x1b" not in as_text(report_of(evil))


def test_slowdown_counts_which_jobs_ran_there_and_for_how_long():
    own = run_of(1, 0, 1000, mean_smact=0.5)
    assert slowdown_of(own, ()) == pytest.approx(1.0)
    whole = slowdown_of(own, (run_of(2, -10, 2000, mean_smact=0.5),))
    half = slowdown_of(own, (run_of(2, 500, 2000, mean_smact=0.5),))
    busier = slowdown_of(own, (run_of(2, -10, 2000, mean_smact=0.9),))
    assert whole is not None and half is not None and busier is not None
    assert 1.0 < half < whole < busier
    assert slowdown_of(replace(own, mean_smact=None), ()) is None
    assert slowdown_of(replace(own, start_s=None), ()) is None


def line(columns: tuple[tuple[str, int], ...], gap: int, **values: str) -> bytes:
    names = {name.replace("-", "_"): name for name, _ in columns}
    given = {names[name]: value for name, value in values.items()}
    cells = (given.get(name, "N/A").ljust(width)[:width] + " " * gap for name, width in columns)
    return "".join(cells).encode() + b"\n"


def test_a_job_is_read_from_squeue_and_from_sacct():
    common = {"Partition": "gpu", "NodeList": "gpu1", "Comment": "my own\nState=X"}
    text = line(
        _SQUEUE,  # type: ignore[arg-type]
        0,
        JobID="7",
        UserID="1000",
        State="RUNNING",
        SubmitTime="2026-03-01T11:00:00",
        StartTime="2026-03-01T12:00:00",
        RestartCnt="2",
        tres_per_node="gres:shard:3",
        **common,
    )
    one = _of_squeue(cut(text, _SQUEUE), 7)
    assert one is not None
    assert (one.user_id, one.state, one.restarts, one.requested, one.end_s) == (
        1000,
        "RUNNING",
        2,
        "gres:shard:3",
        None,
    )
    assert one.start_s is not None and one.submit_s is not None and one.start_s - one.submit_s == 3600
    assert _of_squeue(cut(text, _SQUEUE), 8) is None
    text = line(
        _SACCT,  # type: ignore[arg-type]
        1,
        JobIDRaw="7",
        UID="1000",
        State="CANCELLED by 0",
        Submit="2026-03-01T11:00:00",
        Start="Unknown",
        ReqTRES="gres/shard=3",
        **common,
    )
    ended = parse_sacct(text, 7)
    assert ended is not None
    assert (ended.state, ended.restarts, ended.requested, ended.start_s) == (
        "CANCELLED",
        None,
        "gres/shard=3",
        None,
    )
    assert parse_sacct(b"", 7) is None
    with pytest.raises(SlurmError):
        cut(b"JOBID\n", _SQUEUE)
