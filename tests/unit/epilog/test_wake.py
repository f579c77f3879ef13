from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import KEY, FakeClock, FakeSlurm, signed

from epilog.wake import MOST_QUERIED, wake
from slurm_plugin.core.comments.admin_comment import Note, read_note
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.ledger.requeued_jobs import (
    LACKING_S,
    Lack,
    RequeuedJob,
    begin_waiting,
    end_waiting,
    lacking_bytes,
    waiting_jobs,
)
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.records.queue_position import QueuePosition
from slurm_plugin.slurm.control import JobChange, JobView

PENDING = JobView(job_id=7, user_id=1000, state="PENDING", priority=9)


def test_the_job_that_waited_longest_is_next(tmp_path: Path) -> None:
    assert waiting_jobs(tmp_path) == ()
    for job_id, earliest_s in ((7, 200.0), (8, 100.0), (9, 300.0)):
        begin_waiting(tmp_path, RequeuedJob(job_id=job_id, earliest_s=earliest_s, restart=0))
    (tmp_path / "waiting" / "no job").touch()
    for number, text in enumerate(("no time", "200", ""), start=10):
        (tmp_path / "waiting" / str(number)).write_text(text)
    assert waiting_jobs(tmp_path)[0] == RequeuedJob(job_id=8, earliest_s=100.0, restart=0)
    end_waiting(tmp_path, 8)
    end_waiting(tmp_path, 8)
    assert [each.job_id for each in waiting_jobs(tmp_path)] == [7, 9]


def test_a_woken_job_keeps_the_queue_position_of_its_note(tmp_path: Path) -> None:
    position = QueuePosition(submitted_s=5, accrues_s=6, priority=7)
    for restart, kept in ((1, position), (2, None)):
        reported = signed(Note(event="requeued", start_in_s=9, restart=1, position=position))
        slurm = FakeSlurm(replace(PENDING, admin_comment=reported))
        wake(
            [RequeuedJob(job_id=7, earliest_s=0.0, restart=restart)], tmp_path, slurm, FakeClock(1.0), key=KEY
        )
        _, change = slurm.reported[-1]
        assert isinstance(change, JobChange)
        note = read_note(change.admin_comment or "")
        assert note is not None and (note.event, note.restart, note.position) == ("woken", restart, kept)


def test_what_a_job_lacks_is_kept_for_a_moment(tmp_path: Path) -> None:
    notes = [
        RequeuedJob(
            job_id=job_id,
            earliest_s=200.0,
            restart=1,
            lack=Lack(since_s=since_s, need_bytes=need_bytes, gpus=("GPU-0", "GPU-1")),
        )
        for job_id, since_s, need_bytes in ((7, 100.0, 5), (8, 110.0, 3), (9, 200.0, 9))
    ]
    for note in notes:
        begin_waiting(tmp_path, note)
    found = waiting_jobs(tmp_path)
    assert found == tuple(notes)
    assert lacking_bytes(found, now_s=100.0 + LACKING_S) == {"GPU-0": 5, "GPU-1": 5}
    assert lacking_bytes(found, now_s=110.0 + LACKING_S) == {"GPU-0": 3, "GPU-1": 3}
    assert lacking_bytes(found[:2], now_s=111.0 + LACKING_S) == {}


@pytest.mark.parametrize(("restarts", "woken"), [(1, True), (2, True), (3, False)])
def test_a_job_that_ran_elsewhere_since_is_not_woken(tmp_path: Path, restarts: int, woken: bool) -> None:
    """Preempted there: on 22.05 it would start without a Prolog before that node has forgotten it."""
    slurm = FakeSlurm(replace(PENDING, restarts=restarts))
    event = wake([RequeuedJob(job_id=7, earliest_s=0.0, restart=2)], tmp_path, slurm, FakeClock(), key=KEY)
    assert bool(slurm.reported) == (event.kind == EventKind.WOKEN) == woken


def test_a_job_that_slurm_does_not_change_keeps_no_other_job_from_being_woken(tmp_path: Path) -> None:
    class Refuses(FakeSlurm):
        def update(self, job_id: int, change: JobChange) -> None:
            if job_id == 7:
                raise SlurmError("Job is pending execution")
            super().update(job_id, change)

    slurm = Refuses(PENDING, replace(PENDING, job_id=8))
    waiting = [RequeuedJob(job_id=job_id, earliest_s=0.0, restart=0) for job_id in (7, 8)]
    event = wake(waiting, tmp_path, slurm, FakeClock(), key=KEY)
    assert (event.kind, event.detail) == (EventKind.WOKEN, "job 8 may start in 0 s")
    failed = wake(waiting[:1], tmp_path, slurm, FakeClock(), key=KEY)
    assert failed.kind == EventKind.NOT_WOKEN and failed.detail == "job 7: Job is pending execution"


def test_one_that_goes_while_it_is_looked_at_hides_no_other(tmp_path: Path) -> None:
    begin_waiting(tmp_path, RequeuedJob(job_id=50, earliest_s=1.0, restart=0))
    for gone in range(20, 90, 7):  # wherever the folder lists it
        (tmp_path / "waiting" / str(gone)).symlink_to("nothing")
    assert [each.job_id for each in waiting_jobs(tmp_path)] == [50]


def test_a_folder_that_cannot_be_written_costs_the_wake_alone(tmp_path: Path) -> None:
    begin_waiting(tmp_path / "missing", RequeuedJob(job_id=7, earliest_s=1.0, restart=0))
    end_waiting(tmp_path / "missing", 7)
    assert waiting_jobs(tmp_path / "missing") == ()


def test_a_woken_job_starts_now_or_when_its_node_can_run_a_prolog_for_it(tmp_path: Path) -> None:
    clock, slurm = FakeClock(1000.0), FakeSlurm(PENDING)
    note = [
        signed(Note(event="woken", start_in_s=left_s, restart=0, detail="a GPU is free again"))
        for left_s in range(9)
    ]
    for earliest_s, change in (
        (900.0, JobChange(start_now=True, admin_comment=note[0])),
        (1007.5, JobChange(start_in_s=8, admin_comment=note[8])),
    ):
        waiting = RequeuedJob(job_id=7, earliest_s=earliest_s, restart=0)
        begin_waiting(tmp_path, waiting)
        assert wake([waiting], tmp_path, slurm, clock, key=KEY).kind == EventKind.WOKEN
        assert slurm.reported.pop() == (7, change)
        assert waiting_jobs(tmp_path) == ()


def test_a_slurm_that_does_not_answer_is_queried_again_by_the_next_epilog(tmp_path: Path) -> None:
    slurm = FakeSlurm(PENDING)
    slurm.answers = False
    begin_waiting(tmp_path, RequeuedJob(job_id=7, earliest_s=0.0, restart=0))
    assert wake(waiting_jobs(tmp_path), tmp_path, slurm, FakeClock(), key=KEY).kind == EventKind.NOT_WOKEN
    assert slurm.queries == 1 and len(waiting_jobs(tmp_path)) == 1


def test_a_job_that_no_longer_waits_takes_no_other_jobs_turn(tmp_path: Path) -> None:
    """Cancelled, started on another node, held or put off by its owner: each would cost others up to 160 s."""
    later = replace(PENDING, job_id=3, reason="BeginTime", start_time_s=FakeClock().now_s() + 86_400)
    allocation, elsewhere = (
        replace(PENDING, job_id=5, priority=0),
        replace(PENDING, job_id=6, state="RUNNING"),
    )
    slurm = FakeSlurm(later, allocation, elsewhere, PENDING, replace(PENDING, job_id=8))
    for job_id in (3, 4, 5, 6, 7, 8):
        begin_waiting(tmp_path, RequeuedJob(job_id=job_id, earliest_s=0.0, restart=0))
    event = wake(waiting_jobs(tmp_path), tmp_path, slurm, FakeClock(), key=KEY)
    assert (event.kind, [job_id for job_id, _ in slurm.reported]) == (EventKind.WOKEN, [7])
    assert [each.job_id for each in waiting_jobs(tmp_path)] == [8]


def test_an_epilog_queries_only_a_few_jobs(tmp_path: Path) -> None:
    slurm = FakeSlurm()
    for job_id in range(100):
        begin_waiting(tmp_path, RequeuedJob(job_id=job_id, earliest_s=0.0, restart=0))
    assert wake(waiting_jobs(tmp_path), tmp_path, slurm, FakeClock(), key=KEY).kind == EventKind.NOT_WOKEN
    assert slurm.queries == MOST_QUERIED and len(waiting_jobs(tmp_path)) == 100 - MOST_QUERIED
