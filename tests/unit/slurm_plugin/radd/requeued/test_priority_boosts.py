from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import KEY, FakeClock, FakeSlurm

from slurm_plugin.core.comments.admin_comment import Note
from slurm_plugin.core.config.load import Config, PartitionConfig, parse_config
from slurm_plugin.radd.requeued.boost_records import DAY_S, BoostCause, BoostRecord, is_due, record_for
from slurm_plugin.radd.requeued.position_keeper import PositionKeeper
from slurm_plugin.radd.requeued.priority_boosts import PriorityBooster
from slurm_plugin.radd.requeued.release import Releaser
from slurm_plugin.slurm.control import JobChange, JobView

RADS = BoostCause(fault="estimate", profile_key="ab12")
VICTIM = BoostCause(fault="victim")
WAITING = JobView(
    job_id=7, user_id=1000, state="PENDING", partition="gpu", priority=5000, nice=100, restarts=1
)
SETTINGS = PartitionConfig(recovery_boost=1000, recovery_priority=10_000, boosts_per_day=3)
BOOST = BoostRecord(
    job_id=7, user_id=1000, time_s=0.0, restarts=1, nice_before=100, nice_boosted=-900, profile_key="ab12"
)


def config() -> Config:
    partition = {"collocate": True, "shards_per_gpu": 40, "recovery_boost": 1000}
    return parse_config({"partition": {"gpu": partition}}, origin="rad.toml")


def releaser(slurm: FakeSlurm, clock: FakeClock, made: PriorityBooster) -> Releaser:
    return Releaser(slurm, clock, made, PositionKeeper(slurm, clock, made, config), key=lambda: KEY)


def booster(folder: Path, slurm: FakeSlurm, clock: FakeClock | None = None) -> PriorityBooster:
    return PriorityBooster(folder / "boosts.json", slurm, clock or FakeClock(), config)


@pytest.mark.parametrize(
    ("job", "cause", "settings", "records", "nice"),
    [
        (WAITING, RADS, SETTINGS, (), -900),
        (WAITING, VICTIM, SETTINGS, (), -900),
        (replace(WAITING, priority=9600), RADS, SETTINGS, (), -300),
        (replace(WAITING, priority=10_000), RADS, SETTINGS, (), None),
        (replace(WAITING, priority=4_294_950_000), RADS, SETTINGS, (), None),
        (replace(WAITING, priority=0), RADS, SETTINGS, (), None),
        (WAITING, RADS, replace(SETTINGS, recovery_boost=0), (), None),
        (WAITING, RADS, SETTINGS, (replace(BOOST, job_id=8),), None),
        (WAITING, RADS, SETTINGS, (replace(BOOST, job_id=8, returned=True, profile_key="cd"),) * 3, None),
        (WAITING, VICTIM, SETTINGS, (replace(BOOST, job_id=8, returned=True),) * 3, None),
        (WAITING, RADS, SETTINGS, (replace(BOOST, job_id=8, user_id=1001),) * 3, -900),
        (WAITING, RADS, SETTINGS, (replace(BOOST, job_id=8, time_s=-DAY_S),) * 3, -900),
        (WAITING, VICTIM, SETTINGS, (BOOST,), None),
        (WAITING, VICTIM, SETTINGS, (replace(BOOST, returned=True),), -900),
        (
            WAITING,
            BoostCause(fault="estimate"),
            SETTINGS,
            (replace(BOOST, job_id=8, profile_key=None),),
            -900,
        ),
    ],
    ids=[
        "our estimate",
        "a victim",
        "up to the ceiling",
        "at the ceiling",
        "set by an admin",
        "held",
        "turned off",
        "the same model twice",
        "too often",
        "a victim too often",
        "others' boosts",
        "yesterday's boosts",
        "it has one",
        "it had one",
        "its model is not known, nor that of a victim",
    ],
)
def test_what_a_rerun_is_lent(
    job: JobView,
    cause: BoostCause,
    settings: PartitionConfig,
    records: tuple[BoostRecord, ...],
    nice: int | None,
) -> None:
    record = record_for(job, cause, settings, records, now_s=10.0)
    assert (record and record.nice_boosted) == nice
    assert record is None or record.nice_before == 100


@pytest.mark.parametrize(
    ("job", "due"),
    [
        (WAITING, False),
        (replace(WAITING, state="CONFIGURING"), False),
        (replace(WAITING, state="RUNNING"), True),
        (replace(WAITING, state="RUNNING", priority=0), True),
        (replace(WAITING, state="FAILED"), False),
        (replace(WAITING, state="COMPLETING", restarts=2), False),
        (replace(WAITING, restarts=2), True),
        (replace(WAITING, restarts=2, priority=0), False),
        (replace(WAITING, state="SUSPENDED", restarts=2, priority=0), False),
    ],
)
def test_a_boost_ends_when_its_rerun_starts_or_is_requeued(job: JobView, due: bool) -> None:
    assert is_due(BOOST, job) == due


def test_priority_is_restored_by_whichever_radd_is_there(tmp_path: Path) -> None:
    slurm = FakeSlurm(WAITING)
    first = booster(tmp_path, slurm)
    assert first.boost(WAITING, RADS) == -900
    slurm.views[7] = replace(WAITING, nice=-900)
    second = booster(tmp_path, slurm)
    assert second.outstanding
    second.collect()
    assert slurm.reported == []
    slurm.views[7] = replace(WAITING, nice=-900, state="RUNNING")
    slurm.failing = 1
    second.collect()
    assert second.outstanding
    second.collect()
    second.collect()
    assert slurm.reported == [(7, JobChange(nice=100))]
    assert not second.outstanding and not booster(tmp_path, slurm).outstanding
    assert second.boost(replace(WAITING, job_id=8), RADS) is None, "the same model on the same day"


def test_a_standbys_radd_takes_back_what_the_first_one_lent(tmp_path: Path) -> None:
    """Both mount one folder, and both have been there from the beginning."""
    slurm = FakeSlurm(WAITING)
    first, standby = booster(tmp_path, slurm), booster(tmp_path, slurm)
    assert first.boost(WAITING, RADS) == -900
    slurm.views[7] = replace(WAITING, nice=-900, state="RUNNING")
    assert standby.outstanding
    assert standby.boost(replace(WAITING, job_id=8), RADS) is None, "the same model on the same day"
    standby.collect()
    assert slurm.reported == [(7, JobChange(nice=100))]
    first.collect()
    assert len(slurm.reported) == 1 and not first.outstanding


def test_a_user_who_requeues_the_rerun_keeps_nothing(tmp_path: Path) -> None:
    slurm = FakeSlurm(WAITING)
    made = booster(tmp_path, slurm)
    made.boost(WAITING, RADS)
    slurm.views[7] = replace(WAITING, nice=-900, restarts=2)  # it ran and was requeued between two looks
    made.collect()
    assert slurm.reported == [(7, JobChange(nice=100))]


def test_what_a_user_holds_is_not_released_by_a_change_of_its_nice_value(tmp_path: Path) -> None:
    """Slurm gives a held job a priority again as soon as its nice value changes."""
    slurm = FakeSlurm(WAITING)
    made = booster(tmp_path, slurm)
    made.boost(WAITING, RADS)
    assert made.boost(replace(WAITING, priority=0), RADS) is None, (
        "Slurm had not answered when it was informed"
    )
    slurm.views[7] = replace(WAITING, nice=-900, restarts=2, priority=0)
    made.collect()
    assert made.outstanding and slurm.reported == []
    slurm.views[7] = replace(WAITING, nice=-900, restarts=2)
    made.collect()
    assert slurm.reported == [(7, JobChange(nice=100))]


def test_a_rerun_that_the_prolog_requeues_keeps_its_boost(tmp_path: Path) -> None:
    slurm = FakeSlurm(WAITING)
    made = booster(tmp_path, slurm)
    made.boost(WAITING, RADS)
    made.follow_requeue(7)
    slurm.views[7] = replace(WAITING, nice=-900, restarts=2)
    made.collect()
    assert made.outstanding and slurm.reported == []


def test_a_rerun_that_the_prolog_requeues_is_heard_of(tmp_path: Path) -> None:
    slurm = FakeSlurm(WAITING)
    made = booster(tmp_path, slurm)
    made.boost(WAITING, RADS)
    releaser(slurm, FakeClock(), made).hear(7, Note(event="requeued", start_in_s=15))
    slurm.views[7] = replace(WAITING, nice=-900, restarts=2)
    made.collect()
    assert made.outstanding and slurm.reported == []


def test_what_waits_for_days_is_still_to_be_taken_back(tmp_path: Path) -> None:
    slurm, clock = FakeSlurm(WAITING), FakeClock()
    made = booster(tmp_path / "not there yet", slurm, clock)
    assert made.boost(WAITING, RADS) == -900
    clock.sleep(3 * DAY_S)
    assert made.boost(replace(WAITING, job_id=8, user_id=1001), VICTIM) == -900
    slurm.views[7] = replace(WAITING, nice=-900, state="RUNNING")
    booster(tmp_path / "not there yet", slurm, clock).collect()
    assert slurm.reported == [(7, JobChange(nice=100))]


def test_a_nice_value_that_a_user_changed_is_left(tmp_path: Path) -> None:
    slurm = FakeSlurm(WAITING)
    made = booster(tmp_path, slurm)
    made.boost(WAITING, RADS)
    slurm.views[7] = replace(WAITING, nice=500, state="RUNNING")
    made.collect()
    assert slurm.reported == [] and not made.outstanding


def test_what_cannot_be_written_down_is_not_lent(tmp_path: Path) -> None:
    (tmp_path / "boosts.json").mkdir()
    assert booster(tmp_path, FakeSlurm(WAITING)).boost(WAITING, RADS) is None


def test_an_errand_gives_with_the_start_time_and_again_after_a_refusal(tmp_path: Path) -> None:
    slurm, clock = FakeSlurm(WAITING), FakeClock()
    worker = releaser(slurm, clock, booster(tmp_path, slurm, clock))
    worker.hear(7, Note(event="recovered", start_in_s=0, fault="estimate"), profile_key="ab12")
    tell, slurm.update = slurm.update, refuse_once(slurm)  # type: ignore[method-assign]
    worker.run_errands()
    slurm.update = tell  # type: ignore[method-assign]
    worker.run_errands()
    assert slurm.reported == [(7, JobChange(start_now=True, nice=-900))]


def refuse_once(slurm: FakeSlurm) -> object:
    from slurm_plugin.core.errors import SlurmError

    def update(job_id: int, change: JobChange) -> None:
        raise SlurmError("slurmctld does not answer")

    return update


def test_a_recovery_that_is_the_users_own_fault_is_lent_nothing(tmp_path: Path) -> None:
    slurm, clock = FakeSlurm(WAITING), FakeClock()
    worker = releaser(slurm, clock, booster(tmp_path, slurm, clock))
    worker.hear(7, Note(event="recovered", start_in_s=0))
    worker.run_errands()
    assert slurm.reported == [(7, JobChange(start_now=True))]


def test_a_victim_is_no_reason_to_refuse_its_model_a_boost_later() -> None:
    cause = BoostCause(fault="victim", profile_key="ab12")
    boosted = record_for(WAITING, cause, SETTINGS, (), now_s=0.0)
    assert boosted is not None and boosted.profile_key is None


@pytest.mark.parametrize(
    ("parameters", "boosted"),
    [
        ("bf_continue,enable_user_top", False),
        ("enable_user_top", False),
        ("disable_user_top,x=1", True),
        ("", True),
    ],
)
def test_nothing_is_lent_where_users_move_priority_between_their_jobs(
    tmp_path: Path, parameters: str, boosted: bool
) -> None:
    """`scontrol top` of another job of the user swaps both jobs' nice values (seen on 22.05.8); the boost stays."""
    slurm = FakeSlurm(WAITING, SchedulerParameters=parameters)
    made = booster(tmp_path, slurm)
    assert (made.boost(WAITING, RADS) is not None) == boosted == made.outstanding


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_nothing_is_lent_where_radd_only_looks(tmp_path: Path, mode: str) -> None:
    looking = replace(config(), mode=mode)  # type: ignore[arg-type]
    one = PriorityBooster(tmp_path / "boosts.json", FakeSlurm(WAITING), FakeClock(), lambda: looking)
    assert one.boost(WAITING, RADS) is None and not one.outstanding
