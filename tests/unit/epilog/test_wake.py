from __future__ import annotations

from pathlib import Path

from fakes import FakeClock, FakeSlurm

from epilog.wake import wake
from slurm_plugin.core.events import EventKind
from slurm_plugin.core.waiting import Waiting, begin_waiting, end_waiting, next_waiting
from slurm_plugin.slurm.control import JobChange, JobView

PENDING = JobView(job_id=7, user_id=1000, state="PENDING")


def test_who_has_waited_longest_is_next(tmp_path: Path) -> None:
    assert next_waiting(tmp_path) is None
    for job_id, earliest_s in ((7, 200.0), (8, 100.0), (9, 300.0)):
        begin_waiting(tmp_path, Waiting(job_id=job_id, earliest_s=earliest_s))
    (tmp_path / "waiting" / "no job").touch()
    (tmp_path / "waiting" / "10").write_text("no time")
    assert next_waiting(tmp_path) == Waiting(job_id=8, earliest_s=100.0)
    end_waiting(tmp_path, 8)
    end_waiting(tmp_path, 8)
    assert next_waiting(tmp_path) == Waiting(job_id=7, earliest_s=200.0)


def test_a_folder_that_cannot_be_written_costs_the_wake_alone(tmp_path: Path) -> None:
    begin_waiting(tmp_path / "missing", Waiting(job_id=7, earliest_s=1.0))
    end_waiting(tmp_path / "missing", 7)
    assert next_waiting(tmp_path / "missing") is None


def test_a_woken_job_starts_now_or_when_its_node_can_run_a_prolog_for_it(tmp_path: Path) -> None:
    clock, slurm = FakeClock(1000.0), FakeSlurm(PENDING)
    note = "rad: woken start_in_s={} - a GPU is free again"
    for earliest_s, change in (
        (900.0, JobChange(start_now=True, admin_comment=note.format(0))),
        (1007.5, JobChange(start_in_s=8, admin_comment=note.format(8))),
    ):
        waiting = Waiting(job_id=7, earliest_s=earliest_s)
        begin_waiting(tmp_path, waiting)
        assert wake(waiting, tmp_path, slurm, clock).kind == EventKind.WOKEN
        assert slurm.told.pop() == (7, change)
        assert next_waiting(tmp_path) is None


def test_a_job_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    slurm = FakeSlurm()
    slurm.answers = False
    waiting = Waiting(job_id=7, earliest_s=0.0)
    begin_waiting(tmp_path, waiting)
    assert wake(waiting, tmp_path, slurm, FakeClock()).kind == EventKind.NOT_WOKEN
    assert next_waiting(tmp_path) is None
