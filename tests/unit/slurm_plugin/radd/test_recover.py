from __future__ import annotations

import pytest
from fakes import FakeClock

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.note import Note, format_note
from slurm_plugin.radd.recover import PATIENCE_S, YOUNG_S, Recoverer
from slurm_plugin.slurm.control import JobChange, JobView, NodeView

RECOVERED = Note(event="recovered", start_in_s=0)


class FakeSlurm:
    """Jobs by id, and every change that was asked for."""

    def __init__(self, *jobs: JobView) -> None:
        self.views = {job.job_id: job for job in jobs}
        self.changes: list[tuple[int, JobChange]] = []
        self.failing = 0

    def version(self) -> tuple[int, int, int]:
        return (22, 5, 8)

    def _answer(self) -> None:
        if self.failing:
            self.failing -= 1
            raise SlurmError("slurmctld does not answer")

    def job(self, job_id: int) -> JobView | None:
        self._answer()
        return self.views.get(job_id)

    def jobs(self, *, node: str | None = None, states: tuple[str, ...] = ()) -> tuple[JobView, ...]:
        self._answer()
        return tuple(view for view in self.views.values() if view.state in states)

    def nodes(self) -> tuple[NodeView, ...]:
        return ()

    def config(self) -> dict[str, str]:
        return {}

    def requeue(self, job_id: int) -> None:
        raise AssertionError("radd requeues nothing")

    def update(self, job_id: int, change: JobChange) -> None:
        self._answer()
        self.changes.append((job_id, change))


def job(state: str, job_id: int = 7, **more: object) -> JobView:
    return JobView(job_id=job_id, user_id=1000, state=state, **more)  # type: ignore[arg-type]


def recoverer(slurm: FakeSlurm, clock: FakeClock | None = None) -> Recoverer:
    return Recoverer(slurm, clock or FakeClock())


def test_the_delay_is_cleared_once_the_job_is_pending() -> None:
    slurm = FakeSlurm(job("COMPLETING"))
    worker = recoverer(slurm)
    worker.hear(7, RECOVERED)
    worker.run_errands()
    assert slurm.changes == []
    slurm.views[7] = job("PENDING")
    worker.run_errands()
    worker.run_errands()
    assert slurm.changes == [(7, JobChange(start_now=True))]


def test_a_job_that_was_put_back_waits_as_long_as_it_was_told() -> None:
    slurm = FakeSlurm(job("PENDING"))
    worker = recoverer(slurm)
    worker.hear(7, Note(event="put-back", start_in_s=15))
    worker.run_errands()
    assert slurm.changes == [(7, JobChange(start_in_s=15))]


@pytest.mark.parametrize("note", [Note(event="ended", start_in_s=0), Note(event="recovered")])
def test_other_notes_are_no_errand(note: Note) -> None:
    slurm = FakeSlurm(job("PENDING"))
    worker = recoverer(slurm)
    worker.hear(7, note)
    worker.run_errands()
    assert slurm.changes == []


def test_slurm_is_asked_again_until_it_answers() -> None:
    slurm = FakeSlurm(job("PENDING"))
    slurm.failing = 3
    worker = recoverer(slurm)
    worker.hear(7, RECOVERED)
    for _ in range(5):
        worker.run_errands()
    assert slurm.changes == [(7, JobChange(start_now=True))]


def test_an_errand_ends_with_its_job_and_with_its_time() -> None:
    clock, slurm = FakeClock(), FakeSlurm(job("COMPLETING", 1), job("RUNNING", 2))
    worker = recoverer(slurm, clock)
    for job_id in (1, 2, 3):  # 3 is gone
        worker.hear(job_id, RECOVERED)
    worker.run_errands()
    clock.sleep(YOUNG_S)
    worker.run_errands()
    slurm.views[2] = job("PENDING", 2)
    worker.run_errands()
    assert slurm.changes == [], "a job that went on running is requeued by somebody else"
    clock.sleep(PATIENCE_S)
    worker.run_errands()
    slurm.views[1] = job("PENDING", 1)
    worker.run_errands()
    assert slurm.changes == []


def test_a_job_that_still_runs_may_yet_be_requeued() -> None:
    slurm = FakeSlurm(job("RUNNING"))
    worker = recoverer(slurm)
    worker.hear(7, RECOVERED)
    worker.run_errands()
    slurm.views[7] = job("PENDING")
    worker.run_errands()
    assert slurm.changes == [(7, JobChange(start_now=True))]


def test_a_new_radd_finds_what_the_old_one_left() -> None:
    note = format_note(RECOVERED)
    slurm = FakeSlurm(
        job("PENDING", 1, reason="BeginTime", restarts=1, admin_comment=note),
        job("PENDING", 2, reason="BeginTime", admin_comment=note),
        job("PENDING", 3, reason="Resources", restarts=1, admin_comment=note),
        job("PENDING", 4, reason="BeginTime", restarts=1, admin_comment="an admin's own"),
        job("RUNNING", 5, restarts=1, admin_comment=note),
    )
    worker = recoverer(slurm)
    worker.sweep()
    worker.run_errands()
    assert slurm.changes == [(1, JobChange(start_now=True))]
