"""Which jobs are victims, which are not, and what is remembered of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.records.node import Diagnosis, Outcome
from slurm_plugin.core.units import GIB, MIB
from slurm_plugin.guard.incident_file import incidents_path, read_incidents, write_incidents
from slurm_plugin.guard.incidents import (
    JOINED_S,
    KEPT_S,
    MOST,
    MOST_UNEXPLAINED,
    OVERHEAD_BYTES,
    Ended,
    Incident,
    diagnosis_of,
    incident_of,
    with_incidents,
)
from slurm_plugin.guard.violation import Violation

NOW_S = 1_000_000.0
ALICE, BOB = 1001, 1002
THEFT = Incident(
    kind="memory",
    gpu="GPU-a",
    first_s=NOW_S - 3,
    last_s=NOW_S - 1,
    culprit=1,
    culprit_user_id=ALICE,
    least_free_bytes=100 * MIB,
    detail="holds 30.0 GiB on GPU-a and booked 4.0 GiB",
)
OOM = Outcome(kind="gpu-oom", pattern="pytorch", attempted_bytes=GIB, peak_bytes=2 * GIB)
LOST = Ended(job_id=2, restart=0, gpus=("GPU-a",), limit_bytes=4 * GIB, outcome=OOM)


def test_a_job_that_ran_out_of_memory_next_to_an_overrunning_job_is_a_victim():
    assert diagnosis_of(LOST, (THEFT,), now_s=NOW_S) == Diagnosis(
        kind="victim", culprit=1, culprit_user_id=ALICE, detail=THEFT.detail
    )


@pytest.mark.parametrize(
    ("incident", "ended"),
    [
        (replace(THEFT, least_free_bytes=GIB + OVERHEAD_BYTES), LOST),
        (THEFT, replace(LOST, limit_bytes=3 * GIB + OVERHEAD_BYTES)),
        (THEFT, replace(LOST, outcome=replace(OOM, peak_bytes=None))),
        (replace(THEFT, least_free_bytes=3 * GIB + OVERHEAD_BYTES), replace(LOST, left_s=NOW_S - 2)),
    ],
    ids=[
        "as much was left as it requested",
        "exactly what it booked",
        "no monitor saw its peak",
        "what it used is free again",
    ],
)
def test_a_victim_by_a_narrow_margin(incident: Incident, ended: Ended):
    diagnosis = diagnosis_of(ended, (incident,), now_s=NOW_S)
    assert diagnosis is not None and diagnosis.kind == "victim"


@pytest.mark.parametrize(
    ("incident", "ended"),
    [
        (replace(THEFT, gpu="GPU-b"), LOST),
        (replace(THEFT, last_s=NOW_S - 60), LOST),
        (replace(THEFT, least_free_bytes=20 * GIB), LOST),
        (replace(THEFT, culprit=2), LOST),
        (replace(THEFT, kind="outside-mps"), LOST),
        (THEFT, replace(LOST, outcome=replace(OOM, attempted_bytes=3 * GIB))),
        (THEFT, replace(LOST, outcome=replace(OOM, peak_bytes=4 * GIB, attempted_bytes=None))),
        (THEFT, replace(LOST, outcome=replace(OOM, kind="failed"))),
        (THEFT, replace(LOST, outcome=replace(OOM, kind="host-oom"))),
        (replace(THEFT, least_free_bytes=GIB + OVERHEAD_BYTES + 1), LOST),
        (THEFT, replace(LOST, limit_bytes=3 * GIB + OVERHEAD_BYTES - 1)),
        (replace(THEFT, least_free_bytes=3 * GIB + OVERHEAD_BYTES + 1), replace(LOST, left_s=NOW_S - 2)),
        (replace(THEFT, least_free_bytes=3 * GIB), replace(LOST, left_s=THEFT.last_s)),
        (replace(THEFT, kind="server", victims=(2,)), replace(LOST, outcome=Outcome(kind="cancelled"))),
    ],
    ids=[
        "another GPU",
        "long ago",
        "enough was left",
        "by itself",
        "nothing was taken",
        "it requested more than it booked",
        "it had all that it booked",
        "it said nothing of memory",
        "host memory",
        "a little more was left than it requested",
        "a little more than it booked",
        "a little more than it used is free again",
        "it was still there, and enough was left",
        "its user ended it",
    ],
)
def test_a_job_that_is_no_victim(incident: Incident, ended: Ended):
    assert diagnosis_of(ended, (incident,), now_s=NOW_S) is None


def test_a_whole_gpu_that_an_unmanaged_process_sat_on():
    unmanaged = replace(THEFT, kind="unmanaged", culprit=None, culprit_user_id=BOB)
    whole = replace(
        LOST, limit_bytes=140 * GIB, outcome=replace(OOM, peak_bytes=100 * GIB, attempted_bytes=20 * GIB)
    )
    diagnosis = diagnosis_of(whole, (unmanaged,), now_s=NOW_S)
    assert diagnosis is not None
    assert (diagnosis.kind, diagnosis.culprit, diagnosis.culprit_user_id) == ("victim", None, BOB)


def test_only_clients_of_the_server_are_victims_of_its_end():
    fault = replace(THEFT, kind="server", victims=(2, 3))
    failed = replace(LOST, outcome=Outcome(kind="failed"))
    diagnosis = diagnosis_of(failed, (fault,), now_s=NOW_S)
    assert diagnosis is not None and diagnosis.kind == "victim"
    assert diagnosis_of(replace(failed, job_id=4), (fault,), now_s=NOW_S) is None
    assert diagnosis_of(replace(failed, job_id=1), (fault,), now_s=NOW_S) is None
    assert diagnosis_of(failed, (replace(fault, last_s=NOW_S - 120),), now_s=NOW_S) is None


def test_whose_fault_it_was_is_no_victim_of_the_server_that_ended_with_it():
    """Else a job with a bug would end its neighbours' processes run after run."""
    fault = replace(THEFT, kind="fault", culprit=2)
    server = replace(THEFT, kind="server", culprit=None, culprit_user_id=None, victims=(2, 3))
    failed = replace(LOST, outcome=Outcome(kind="failed"))
    for incidents in ((fault, server), (server, fault)):
        assert diagnosis_of(failed, incidents, now_s=NOW_S) is None
        victim = diagnosis_of(replace(failed, job_id=3), incidents, now_s=NOW_S)
        assert victim is not None and victim.kind == "victim"
    long_ago = replace(fault, last_s=NOW_S - 120)
    assert diagnosis_of(failed, (long_ago, server), now_s=NOW_S) is not None, "this end has another cause"


def test_a_job_that_ends_its_server_in_each_run_is_its_victim_a_few_times_only():
    """Is unknown to RAD why it ended: a job that does it was run again twenty times, each time to its end.

    One that was requeued or preempted twenty times before is a victim all the same.
    """
    server = replace(THEFT, kind="server", culprit=None, culprit_user_id=None, victims=(2,))
    failed = replace(LOST, outcome=Outcome(kind="failed"))
    victims = [
        diagnosis.server_ends
        for before in range(20)
        if (
            diagnosis := diagnosis_of(replace(failed, server_ends=before, restart=20), (server,), now_s=NOW_S)
        )
    ]
    assert victims == list(range(1, MOST_UNEXPLAINED + 1))


@pytest.mark.parametrize("rerun", [True, False])
def test_a_job_that_was_stopped_is_reported_so_and_is_no_victim(rerun: bool):
    stopped = replace(THEFT, stopped=True, rerun=rerun)
    other = replace(THEFT, culprit=9, gpu="GPU-a")
    ended = replace(LOST, job_id=1)
    diagnosis = diagnosis_of(ended, (stopped, other), now_s=NOW_S)
    assert diagnosis is not None
    assert (diagnosis.kind, diagnosis.rerun, diagnosis.culprit_user_id) == ("overrun", rerun, ALICE)
    idle = diagnosis_of(ended, (replace(stopped, kind="idle"),), now_s=NOW_S)
    assert idle is not None and (idle.kind, idle.rerun) == ("idle", rerun)
    assert diagnosis_of(replace(ended, restart=1), (stopped,), now_s=NOW_S) is None


@pytest.mark.parametrize("kind", ["memory", "fault"])
def test_what_was_seen_before_the_clock_was_set_back_hurts_no_job_now(kind: str):
    old = replace(THEFT, kind=kind, victims=(2,), first_s=NOW_S + 3590, last_s=NOW_S + 3600)
    assert diagnosis_of(LOST, (old,), now_s=NOW_S) is None
    stopped = replace(old, stopped=True)
    assert with_incidents((stopped,), (), now_s=NOW_S) == (stopped,), (
        "a job just stopped still gets the reason"
    )
    again = replace(old, first_s=NOW_S, last_s=NOW_S)
    assert len(with_incidents((stopped,), (again,), now_s=NOW_S)) == 2, "and what begins now is another"


def test_samples_of_one_thing_are_one_incident():
    later = replace(THEFT, first_s=NOW_S, last_s=NOW_S, least_free_bytes=GIB)
    (one,) = with_incidents((replace(THEFT, stopped=True),), (later,), now_s=NOW_S)
    assert (one.first_s, one.last_s, one.least_free_bytes, one.stopped) == (
        NOW_S - 3,
        NOW_S,
        100 * MIB,
        True,
    )
    assert len(with_incidents((THEFT,), (replace(later, culprit=5),), now_s=NOW_S)) == 2
    again = replace(later, last_s=THEFT.last_s + JOINED_S + 1)
    assert len(with_incidents((THEFT,), (again,), now_s=again.last_s)) == 2, "what was over began again"
    assert with_incidents((THEFT,), (), now_s=NOW_S + KEPT_S + 2) == ()


def test_what_is_kept_is_bounded():
    many = [replace(THEFT, culprit=n, last_s=NOW_S + n) for n in range(3 * MOST)]
    kept = with_incidents((), many, now_s=NOW_S + 3 * MOST)
    assert len(kept) == MOST and kept[-1].culprit == 3 * MOST - 1


def test_the_file(tmp_path: Path):
    assert read_incidents(tmp_path) == ()
    fault = replace(THEFT, kind="fault", victims=(2, 3))
    write_incidents(tmp_path, (THEFT, fault))
    assert read_incidents(tmp_path) == (THEFT, fault)
    assert incidents_path(tmp_path).stat().st_mode & 0o777 == 0o600
    for broken in ("", "{", '[{"kind": "memory"}]', "[1]", '{"a": 1}'):
        incidents_path(tmp_path).write_text(broken)
        assert read_incidents(tmp_path) == ()


@pytest.mark.parametrize(
    ("response", "stopped", "rerun"),
    [("requeue", True, True), ("requeue", False, False), ("end", True, False)],
)
def test_a_job_runs_again_only_if_it_was_stopped_for_that(response: str, stopped: bool, rerun: bool):
    violation = Violation(
        kind="memory",
        gpu="GPU-a",
        job_id=1,
        user_id=ALICE,
        restart=0,
        used_bytes=9,
        limit_bytes=4,
        free_bytes=0,
        processes=(Process(pid=1, started_ticks=1),),
        response=response,  # type: ignore[arg-type]
    )
    assert incident_of(violation, now_s=NOW_S, stopped=stopped).rerun == rerun


def test_what_was_decided_once_stays_while_the_same_goes_on():
    stopped = replace(THEFT, stopped=True, rerun=True)
    (joined,) = with_incidents((stopped,), (replace(THEFT, last_s=NOW_S),), now_s=NOW_S)
    assert (joined.stopped, joined.rerun, joined.first_s) == (True, True, THEFT.first_s)
