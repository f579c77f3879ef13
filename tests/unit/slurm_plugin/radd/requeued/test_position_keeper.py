"""radd restores a requeued job's queue position, and takes the boost back when the job starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import KEY, FakeClock, FakeSlurm, signed

from slurm_plugin.core.comments.admin_comment import Note
from slurm_plugin.core.config.load import Config, parse_config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.records.queue_position import QueuePosition
from slurm_plugin.radd.requeued.boost_records import BoostCause
from slurm_plugin.radd.requeued.position_keeper import EVERY_S, PositionKeeper
from slurm_plugin.radd.requeued.priority_boosts import PriorityBooster
from slurm_plugin.radd.requeued.release import Releaser
from slurm_plugin.slurm.control import JobChange, JobView, Standing

WAITS = Standing(
    job_id=7,
    user_id=1000,
    state="PENDING",
    partition="gpu",
    priority=90,
    nice=5,
    restarts=1,
    submitted_s=9000,
)
VIEW = JobView(
    job_id=7,
    user_id=1000,
    state="PENDING",
    partition="gpu",
    priority=90,
    nice=5,
    restarts=1,
    reason="Priority",
)
POSITION = QueuePosition(submitted_s=8000, accrues_s=None, priority=103, nice=5)
NOTE = Note(event="requeued", start_in_s=10, restart=1, position=POSITION)
BASIC = {"PriorityType": "priority/basic"}


class Deaf(FakeSlurm):
    """Answers, and may take no changes."""

    deaf = False

    def update(self, job_id: int, change: JobChange) -> None:
        if self.deaf:
            raise SlurmError("Unable to contact slurm controller")
        super().update(job_id, change)


class Site:
    """A Slurm with one requeued job, and radd's two threads' worth of work on it."""

    def __init__(self, folder: Path, *, keep_queue_position: bool = True, **config: str) -> None:
        self.clock = FakeClock()
        self.slurm = Deaf(VIEW, **(BASIC | config))
        self.slurm.places[7] = WAITS
        self.folder, self.keep_queue_position = folder, keep_queue_position
        self.start_radd()

    def start_radd(self) -> None:
        self.booster = PriorityBooster(self.folder / "boosts.json", self.slurm, self.clock, self.config)
        self.keeper = PositionKeeper(self.slurm, self.clock, self.booster, self.config)
        self.releaser = Releaser(self.slurm, self.clock, self.booster, self.keeper, key=lambda: KEY)

    def config(self) -> Config:
        partition = {"collocate": True, "shards_per_gpu": 40, "keep_queue_position": self.keep_queue_position}
        return parse_config({"partition": {"gpu": partition}}, origin="rad.toml")

    def nice(self, value: int, **more: object) -> None:
        """Let Slurm show what it was given."""
        before = self.slurm.places[7]
        priority = before.priority + before.nice - value
        self.slurm.places[7] = replace(before, nice=value, priority=priority, **more)  # type: ignore[arg-type]
        self.slurm.views[7] = replace(self.slurm.views[7], nice=value, **more)  # type: ignore[arg-type]

    def look(self) -> list[int]:
        """Return the nice values that Slurm is to set in one round."""
        begin = len(self.slurm.reported)
        self.booster.collect()
        self.keeper.keep()
        self.clock.time_s += EVERY_S
        changes = [change for _, change in self.slurm.reported[begin:] if isinstance(change, JobChange)]
        return [change.nice for change in changes if change.nice is not None]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_requeued_job_is_boosted_until_it_starts(site: Site) -> None:
    site.releaser.hear(7, NOTE)
    assert site.look() == [-3], "priority 98 without its nice value of 5, as it had"
    site.nice(-3)
    assert site.look() == []
    site.nice(-3, state="RUNNING", reason="Prolog")
    assert site.look() == [], "its Prolog may put it back again"
    site.nice(-3, state="RUNNING", reason="None")
    assert site.look() == [5]
    assert not site.keeper.busy and not site.booster.outstanding


def test_a_priority_that_a_user_set_by_hand_stays(site: Site) -> None:
    """Slurm takes a nice value then and heeds it not; raised again and again, it would never end."""
    site.releaser.hear(7, NOTE)
    assert site.look() == [-3]
    site.slurm.places[7] = replace(site.slurm.places[7], nice=-3)
    site.slurm.views[7] = replace(site.slurm.views[7], nice=-3)
    assert site.look() == [5], "as it was"
    site.nice(5)
    assert site.look() == []
    assert not site.keeper.busy


def test_a_job_started_between_two_samples_is_not_taken_for_one_of_an_admins(site: Site) -> None:
    """Slurm shows a job that is requeued a second time with its boosted nice value, and a priority again."""
    site.releaser.hear(7, NOTE)
    assert site.look() == [-3]
    site.nice(-3, state="RUNNING", reason="Prolog")
    assert site.look() == []
    site.releaser.hear(7, replace(NOTE, restart=2))
    again = replace(WAITS, nice=-3, restarts=2, state="COMPLETING")
    site.slurm.places[7] = again
    site.slurm.views[7] = replace(VIEW, nice=-3, restarts=2)
    assert site.look() == []
    site.slurm.places[7] = replace(again, state="PENDING")
    assert min(site.look()) < -3, "priority 87 without its nice value of 5 and what it is lent"
    assert site.keeper.busy


def test_a_radd_that_was_restarted_goes_on(site: Site) -> None:
    site.releaser.hear(7, NOTE)
    site.look()
    site.nice(-3)
    site.slurm.views[7] = replace(
        site.slurm.views[7], admin_comment=signed(NOTE, job_id=7, user_id=site.slurm.views[7].user_id)
    )
    site.start_radd()
    site.releaser.scan()
    assert site.keeper.busy
    assert site.look() == []
    site.nice(-3, state="RUNNING")
    assert site.look() == [5]


def test_a_change_that_slurm_did_not_hear_is_made_again(site: Site) -> None:
    site.releaser.hear(7, NOTE)
    site.slurm.deaf = True
    assert site.look() == []
    assert site.booster.outstanding, "it is written down first"
    site.slurm.deaf = False
    assert site.look() == [-3]


def test_what_another_user_sets_stays(site: Site) -> None:
    site.releaser.hear(7, NOTE)
    site.look()
    site.nice(50)
    assert site.look() == []
    site.nice(50, state="RUNNING")
    assert site.look() == []
    assert not site.booster.outstanding


def test_a_boost_for_another_reason_is_kept_apart(site: Site) -> None:
    """It is boosted, requeued, raised, and started: what it had at first comes back."""
    assert site.booster.boost(VIEW, BoostCause(fault="victim")) == -995
    site.nice(-995)
    site.slurm.places[7] = replace(site.slurm.places[7], restarts=2)
    site.slurm.views[7] = replace(site.slurm.views[7], restarts=2)
    site.releaser.hear(7, replace(NOTE, restart=2, position=replace(POSITION, nice=-995)))
    assert site.look() == [-1003]
    site.nice(-1003, state="RUNNING")
    assert site.look() == [5]


def test_what_another_radd_lent_is_not_lent_again(site: Site) -> None:
    """A standby's, or one that lost its files."""
    site.releaser.hear(7, NOTE)
    assert site.look() == [-3]
    site.nice(-3)
    (site.folder / "boosts.json").unlink()
    site.start_radd()
    site.releaser.hear(7, NOTE)
    assert site.look() == []


@pytest.mark.parametrize(
    ("keep_queue_position", "config"), [(False, {}), (True, {"SchedulerParameters": "enable_user_top"})]
)
def test_no_job_is_raised_where_that_is_off(
    tmp_path: Path, keep_queue_position: bool, config: dict[str, str]
) -> None:
    site = Site(tmp_path, keep_queue_position=keep_queue_position, **config)
    site.releaser.hear(7, NOTE)
    assert site.look() == []


def test_a_held_job_waits_and_one_that_ran_since_is_forgotten(site: Site) -> None:
    site.releaser.hear(7, NOTE)
    site.slurm.places[7] = replace(WAITS, priority=0)
    assert site.look() == [] and site.keeper.busy
    site.slurm.places[7] = replace(WAITS, restarts=2)
    site.look()
    assert not site.keeper.busy


def test_slurm_may_be_away(site: Site) -> None:
    site.releaser.hear(7, NOTE)
    site.slurm.answers = False
    assert site.look() == [] and site.keeper.busy
    site.slurm.answers = True
    assert site.look() == [-3]
