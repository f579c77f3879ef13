from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fakes import KEY, FakeClock, FakeSlurm, no_boosts, signed

from epilog.wake import wake
from slurm_plugin.core.clock import Deadline, SystemClock
from slurm_plugin.core.comments.admin_comment import Note, read_note
from slurm_plugin.core.ledger.requeued_jobs import RequeuedJob
from slurm_plugin.core.process.background import in_background
from slurm_plugin.radd.requeued import release
from slurm_plugin.radd.requeued.release import MOST_SCANNED, PATIENCE_S, YOUNG_S, Releaser
from slurm_plugin.slurm.control import JobChange, JobView

RECOVERED = Note(event="recovered", start_in_s=0)


def job(state: str, job_id: int = 7, **more: object) -> JobView:
    return JobView(job_id=job_id, user_id=1000, state=state, **more)  # type: ignore[arg-type]


def releaser(slurm: FakeSlurm, clock: FakeClock | None = None) -> Releaser:
    clock = clock or FakeClock()
    return Releaser(slurm, clock, *no_boosts(slurm, clock), key=lambda: KEY)


def test_the_delay_is_cleared_once_the_job_is_pending() -> None:
    slurm = FakeSlurm(job("COMPLETING"))
    worker = releaser(slurm)
    worker.hear(7, RECOVERED)
    worker.run_errands()
    assert slurm.reported == []
    slurm.views[7] = job("PENDING")
    worker.run_errands()
    worker.run_errands()
    assert slurm.reported == [(7, JobChange(start_now=True))]


def test_a_site_that_preempts_thousands_is_not_queried_about_each() -> None:
    preempted = [job("PENDING", number, restarts=1, reason="Priority") for number in range(1000, 3000)]
    waits = job(
        "PENDING", 7, restarts=1, reason="BeginTime", start_time_s=0.0, admin_comment=signed(RECOVERED)
    )
    slurm = FakeSlurm(*preempted, waits)
    worker = releaser(slurm)
    worker.scan()
    assert slurm.queries <= MOST_SCANNED + 1
    worker.run_errands()
    assert slurm.reported == [(7, JobChange(start_now=True))]


def test_a_job_that_was_requeued_waits_as_long_as_stated() -> None:
    slurm = FakeSlurm(job("PENDING"))
    worker = releaser(slurm)
    worker.hear(7, Note(event="requeued", start_in_s=15))
    worker.run_errands()
    assert slurm.reported == [(7, JobChange(start_in_s=15))]


def test_a_job_that_is_woken_before_it_is_pending_again_does_not_wait_as_long_as_first_stated() -> None:
    """Seen on two H200s: both were idle for a minute, because radd set the doubled delay after the wake."""
    slurm = FakeSlurm(job("COMPLETING", priority=9))
    worker = releaser(slurm)
    worker.hear(7, Note(event="requeued", start_in_s=80))
    worker.run_errands()
    wake(
        [RequeuedJob(job_id=7, earliest_s=0.0, restart=0)],
        Path("/nonexistent"),
        slurm,
        FakeClock(1.0),
        key=KEY,
    )
    _, change = slurm.reported.pop()
    worker.hear(7, read_note(change.admin_comment or "") or pytest.fail("radd hears of no wake"))
    slurm.views[7] = job("PENDING")
    worker.run_errands()
    worker.run_errands()
    assert slurm.reported == [(7, JobChange(start_now=True))]


@pytest.mark.parametrize("note", [Note(event="ended", start_in_s=0), Note(event="recovered")])
def test_other_notes_are_no_errand(note: Note) -> None:
    slurm = FakeSlurm(job("PENDING"))
    worker = releaser(slurm)
    worker.hear(7, note)
    worker.run_errands()
    assert slurm.reported == []


def test_slurm_is_queried_again_until_it_answers() -> None:
    slurm = FakeSlurm(job("PENDING"))
    slurm.failing = 3
    worker = releaser(slurm)
    worker.hear(7, RECOVERED)
    for _ in range(5):
        worker.run_errands()
    assert slurm.reported == [(7, JobChange(start_now=True))]


def test_an_errand_ends_with_its_job_and_with_its_time() -> None:
    clock, slurm = FakeClock(), FakeSlurm(job("COMPLETING", 1), job("RUNNING", 2))
    worker = releaser(slurm, clock)
    for job_id in (1, 2, 3):  # 3 is gone
        worker.hear(job_id, RECOVERED)
    worker.run_errands()
    clock.sleep(YOUNG_S)
    worker.run_errands()
    slurm.views[2] = job("PENDING", 2)
    worker.run_errands()
    assert slurm.reported == [], "a job that went on running is requeued by another program"
    clock.sleep(PATIENCE_S)
    worker.run_errands()
    slurm.views[1] = job("PENDING", 1)
    worker.run_errands()
    assert slurm.reported == []


def test_a_job_that_still_runs_may_yet_be_requeued() -> None:
    slurm = FakeSlurm(job("RUNNING"))
    worker = releaser(slurm)
    worker.hear(7, RECOVERED)
    worker.run_errands()
    slurm.views[7] = job("PENDING")
    worker.run_errands()
    assert slurm.reported == [(7, JobChange(start_now=True))]


def test_a_new_radd_finds_what_the_old_one_left() -> None:
    note = {number: signed(RECOVERED, job_id=number) for number in range(7)}
    follow_requeue = signed(Note(event="requeued", start_in_s=15), job_id=6)
    slurm = FakeSlurm(
        job("PENDING", 2, reason="BeginTime", admin_comment=note[2]),
        job("PENDING", 1, reason="BeginTime", restarts=1, admin_comment=note[1]),
        job("PENDING", 3, reason="Resources", restarts=1, admin_comment=note[3]),
        job("PENDING", 4, reason="BeginTime", restarts=1, admin_comment="an admin's own"),
        job("RUNNING", 5, restarts=1, admin_comment=note[5]),
        job("PENDING", 6, reason="BeginTime", restarts=1, admin_comment=follow_requeue),
    )
    worker = releaser(slurm)
    worker.scan()
    worker.run_errands()
    assert slurm.reported == [(1, JobChange(start_now=True))]


def test_a_job_that_ends_between_two_questions_is_none() -> None:
    class Forgets(FakeSlurm):
        def job(self, job_id: int) -> JobView | None:
            return None

    slurm = Forgets(job("PENDING", 1, reason="BeginTime", restarts=1))
    releaser(slurm).scan()
    assert slurm.reported == []


def test_epilogs_and_file_systems_may_take_their_time() -> None:
    slurm, clock = FakeSlurm(job("COMPLETING")), FakeClock()
    worker = releaser(slurm, clock)
    worker.hear(7, RECOVERED)
    clock.sleep(YOUNG_S + 1)
    worker.run_errands()
    slurm.views[7] = job("PENDING")
    worker.run_errands()
    assert slurm.reported == [(7, JobChange(start_now=True))]


@pytest.mark.parametrize(("restarts", "cleared"), [(1, True), (2, False), (3, False)])
def test_a_note_of_an_earlier_rerun_moves_nothing(restarts: int, cleared: bool) -> None:
    """The job ran out of memory, ran again, and was preempted then: Slurm keeps the AdminComment."""
    note = signed(RECOVERED, job_id=1)
    slurm = FakeSlurm(job("PENDING", 1, reason="BeginTime", restarts=restarts, admin_comment=note))
    worker = releaser(slurm)
    worker.scan()
    worker.run_errands()
    assert slurm.reported == ([(1, JobChange(start_now=True))] if cleared else [])


def test_a_job_that_has_not_come_so_far_yet_is_waited_for() -> None:
    """Slurm counts the restart when the requeue is through."""
    slurm = FakeSlurm(job("COMPLETING", restarts=0))
    worker = releaser(slurm)
    worker.hear(7, replace(RECOVERED, restart=1))
    worker.run_errands()
    slurm.views[7] = job("PENDING", restarts=1)
    worker.run_errands()
    assert slurm.reported == [(7, JobChange(start_now=True))]


def test_a_start_that_its_owner_put_off_stays_where_he_put_it() -> None:
    """`scontrol update StartTime=tomorrow` of a rerun that waits, before radd is restarted."""
    clock = FakeClock()
    recovered = signed(RECOVERED, job_id=1)
    waits = job("PENDING", 1, reason="BeginTime", restarts=1, admin_comment=recovered)
    slurm = FakeSlurm(replace(waits, start_time_s=clock.now_s() + 86_400))
    worker = releaser(slurm, clock)
    worker.scan()
    worker.run_errands()
    assert slurm.reported == []


def test_what_is_heard_while_an_errand_is_run_is_the_next_errand() -> None:
    class Hearing(FakeSlurm):
        def update(self, job_id: int, change: JobChange) -> None:
            super().update(job_id, change)
            if len(self.reported) == 1:
                worker.hear(job_id, Note(event="requeued", start_in_s=15))

    slurm = Hearing(job("PENDING"))
    worker = releaser(slurm)
    worker.hear(7, RECOVERED)
    worker.run_errands()
    worker.run_errands()
    assert slurm.reported == [(7, JobChange(start_now=True)), (7, JobChange(start_in_s=15))]


def test_a_bug_over_one_job_costs_no_other_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm(job("PENDING"), job("PENDING", 8))
    view_of = slurm.job

    def trips_over_the_first(job_id: int) -> JobView | None:
        if job_id == 7:
            raise ZeroDivisionError("a bug")
        return view_of(job_id)

    monkeypatch.setattr(slurm, "job", trips_over_the_first)
    worker = releaser(slurm)
    for job_id in (7, 8):
        worker.hear(job_id, RECOVERED)
    with pytest.raises(ZeroDivisionError):
        worker.run_errands()
    worker.run_errands()
    assert slurm.reported == [(8, JobChange(start_now=True))]


def test_a_bug_over_what_an_older_radd_left_keeps_no_errand_from_being_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each round began with it, raised, and came no further."""
    slurm, clock = FakeSlurm(job("PENDING")), SystemClock()

    def trips(**_: object) -> tuple[JobView, ...]:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(slurm, "jobs", trips)
    monkeypatch.setattr(release, "in_background", partial(in_background, pause_s=0.0))
    worker = Releaser(slurm, clock, *no_boosts(slurm, clock), key=lambda: KEY)
    worker.hear(7, RECOVERED)
    worker.start()
    deadline = Deadline(clock, 5.0)
    while not slurm.reported and not deadline.passed():
        clock.sleep(0.01)
    worker.stop()
    assert slurm.reported == [(7, JobChange(start_now=True))]


def test_what_an_older_radd_left_is_looked_for_until_slurm_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "POLL_OLD_S", 0.01)
    slurm = FakeSlurm(job("PENDING", restarts=1, reason="BeginTime", admin_comment=signed(RECOVERED)))
    slurm.failing = 2
    clock = SystemClock()
    worker = Releaser(slurm, clock, *no_boosts(slurm, clock), key=lambda: KEY)
    worker.start()
    deadline = Deadline(clock, 10.0)
    while not slurm.reported and not deadline.passed():
        clock.sleep(0.01)
    worker.stop()
    assert slurm.reported == [(7, JobChange(start_now=True))]
