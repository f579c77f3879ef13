"""A requeued job gets its former queue position: never above a job that was ahead of it, whatever Slurm made of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.records.queue_position import QueuePosition
from slurm_plugin.radd.requeued.queue_positions import Ageing, lost_points, restoring_boosts
from slurm_plugin.slurm.control import Standing

NOW_S = 10_000
EQUAL = Ageing(basic=False, weight=0, longest_s=0)
BASIC = Ageing(basic=True, weight=0, longest_s=0)
AGES = Ageing(basic=False, weight=1000, longest_s=1000)
NODES = (("gpu", "plain"), ("cpu",))
MINE = Standing(
    job_id=7,
    user_id=1000,
    state="PENDING",
    partition="gpu",
    priority=1,
    restarts=1,
    submitted_s=9000,
    accrues_s=9010,
)
POSITION = QueuePosition(submitted_s=8000, accrues_s=8000, priority=1)


def other(submitted_s: int, priority: int = 1, **more: object) -> Standing:
    made = replace(MINE, job_id=20_000 - submitted_s, submitted_s=submitted_s, priority=priority, restarts=0)
    return replace(made, **more)  # type: ignore[arg-type]


def lift(
    *others: Standing, mine: Standing = MINE, position: QueuePosition = POSITION, ageing: Ageing = EQUAL
) -> int | None:
    return restoring_boosts({7: position}, (mine, *others), {}, ageing, NODES, now_s=NOW_S).get(7)


@pytest.mark.parametrize(
    ("others", "points"),
    [
        ((), 0),
        ((other(8500),), 1),
        ((other(9500),), 0),
        ((other(7000),), 0),
        ((other(7000), other(8500)), 0),
        ((other(7000, reason="Dependency"), other(8500)), 1),
        ((other(7000, partition="cpu"), other(8500)), 1),
        ((other(7000, partition="cpu,plain"), other(8500)), 0),
        ((other(8500, partition="cpu"),), 0),
        ((other(7000, priority=2), other(8500)), 1),
        ((other(9500, priority=2), other(8500)), 0),
        ((other(8500, priority=0),), 0),
    ],
    ids=[
        "alone",
        "a job since its submission",
        "a job since its return",
        "a job before it",
        "between two: no number lies there",
        "a job before it that cannot start",
        "elsewhere",
        "a job that may run here as well",
        "a later job elsewhere",
        "level with a job of more priority from before its return",
        "not level with a job of more priority from after its return",
        "a held job",
    ],
)
def test_equals_start_in_the_order_of_their_first_submission(
    others: tuple[Standing, ...], points: int
) -> None:
    assert lift(*others) == points


def test_what_an_admin_raised_a_job_by_is_not_boosted_any_more() -> None:
    mine, position = replace(MINE, priority=90), replace(POSITION, priority=98)
    assert lift(mine=mine, position=position, ageing=BASIC) == 8
    assert lift(mine=replace(mine, priority=95, nice=-5), position=position, ageing=BASIC) == 3
    assert lift(mine=replace(mine, priority=80, nice=10), position=position, ageing=BASIC) == 8


def test_a_held_job_is_left_alone() -> None:
    assert lift(other(8500), mine=replace(MINE, priority=0)) is None


@pytest.mark.parametrize(
    ("ageing", "mine", "position", "points"),
    [
        (BASIC, replace(MINE, priority=90), replace(POSITION, priority=98), 8),
        (BASIC, replace(MINE, priority=98), replace(POSITION, priority=98), 0),
        (BASIC, replace(MINE, priority=99), replace(POSITION, priority=98), 0),
        (BASIC, replace(MINE, priority=98, nice=-8), replace(POSITION, priority=98), 8),
        (BASIC, replace(MINE, priority=80, nice=10), replace(POSITION, priority=98), 8),
        (
            AGES,
            replace(MINE, priority=1, accrues_s=9910),
            QueuePosition(submitted_s=0, accrues_s=9300, priority=1),
            610,
        ),
        (
            AGES,
            replace(MINE, priority=1, accrues_s=9910),
            QueuePosition(submitted_s=0, accrues_s=100, priority=901),
            910,
        ),
        (
            AGES,
            replace(MINE, priority=1, accrues_s=None),
            QueuePosition(submitted_s=0, accrues_s=9300, priority=1),
            700,
        ),
        (
            AGES,
            replace(MINE, priority=1, accrues_s=NOW_S + 60),
            QueuePosition(submitted_s=0, accrues_s=None, priority=1),
            0,
        ),
        (
            replace(AGES, from_submission=True),
            replace(MINE, priority=1),
            QueuePosition(submitted_s=9500, accrues_s=None, priority=1),
            0,
        ),
    ],
    ids=[
        "numbered again",
        "not numbered again",
        "numbered higher",
        "raised already",
        "its owner is nicer",
        "an age",
        "no more than the longest wait earns",
        "an age that does not count yet",
        "it had none",
        "older than when it was first submitted",
    ],
)
def test_what_slurm_took(ageing: Ageing, mine: Standing, position: QueuePosition, points: int) -> None:
    assert lost_points(position, mine, ageing, now_s=NOW_S) == points


def test_nothing_is_missing_before_slurm_has_taken_it() -> None:
    """Slurm computes priorities again every five minutes as it comes."""
    ageing = replace(AGES, every_s=300)
    mine = replace(MINE, priority=601, submitted_s=9990, accrues_s=9993)
    position = QueuePosition(submitted_s=9300, accrues_s=9300, priority=601)
    assert lost_points(position, mine, ageing, now_s=NOW_S) == 0
    assert lost_points(position, replace(mine, priority=8), ageing, now_s=NOW_S) == 400 - 7
    assert lost_points(position, replace(mine, priority=8), ageing, now_s=NOW_S + 310) == 700 + 10 - 317


@given(
    st.integers(0, 2000), st.integers(0, 3000), st.integers(0, 1500), st.integers(0, 300), st.integers(0, 300)
)
def test_an_age_is_never_more_than_it_would_be(
    waited_s: int, later_s: int, accrues_in_s: int, others_s: int, mine_s: int
) -> None:
    """Whenever Slurm computed the priorities: of others so long ago, of this job so long or not at all yet."""
    ageing = replace(AGES, every_s=300)

    def priority(accrues_s: int, at_s: float) -> int:
        return 1 + int(ageing.points(submitted_s=accrues_s, accrues_s=accrues_s, now_s=at_s))

    requeued_s = waited_s
    now_s = requeued_s + later_s
    position = QueuePosition(
        submitted_s=0, accrues_s=0, priority=priority(0, requeued_s - min(others_s, requeued_s))
    )
    accrues_s = requeued_s + accrues_in_s
    computed_s = now_s - mine_s
    shown = position.priority if computed_s < requeued_s else priority(accrues_s, computed_s)
    mine = replace(MINE, priority=shown, submitted_s=requeued_s, accrues_s=accrues_s)
    twin = priority(0, max(now_s - others_s, requeued_s - others_s, 0))
    if computed_s < requeued_s:
        twin = max(twin, position.priority)
    assert shown + lost_points(position, mine, ageing, now_s=now_s) <= max(twin, shown)


def test_several_that_were_requeued_keep_their_order() -> None:
    early, late = replace(MINE, job_id=7, submitted_s=9100), replace(MINE, job_id=8, submitted_s=9000)
    positions = {7: POSITION, 8: replace(POSITION, submitted_s=8100)}
    found = restoring_boosts(positions, (early, late, other(8500)), {}, EQUAL, NODES, now_s=NOW_S)
    assert found == {8: 1, 7: 2}
    raised = (replace(early, priority=3, nice=-2), replace(late, priority=2, nice=-1), other(8500))
    assert restoring_boosts(positions, raised, found, EQUAL, NODES, now_s=NOW_S) == found, "and stay there"


def test_where_all_weights_are_0_the_first_point_does_not_show() -> None:
    """Slurm shows 1 for what is 0 or less; seen on 24.11.5."""
    lent, shown = {7: 0}, []
    for _ in range(4):
        mine = replace(MINE, priority=max(1, lent[7]), nice=-lent[7])
        lent = restoring_boosts({7: POSITION}, (mine, other(8500)), lent, EQUAL, NODES, now_s=NOW_S)
        shown.append(max(1, lent[7]))
    assert shown == [1, 2, 2, 2] and lent == {7: 2}


JOBS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(7990, 9010), st.sampled_from(["gpu", "cpu", "plain"])),
    max_size=6,
)


@given(JOBS, st.integers(1, 3), st.integers(0, 2), st.lists(st.integers(8000, 8999), min_size=1, max_size=3))
def test_no_job_passes_one_that_was_before_it(
    rows: list[tuple[int, int, str]], priority: int, taken: int, first: list[int]
) -> None:
    """Whatever the others are, and however often it is looked."""
    others = [
        replace(MINE, job_id=100 + at, priority=points, submitted_s=when, partition=name)
        for at, (points, when, name) in enumerate(rows)
    ]
    requeue = [
        replace(MINE, job_id=7 + at, priority=max(1, priority - taken), submitted_s=9000 + at)
        for at in range(len(first))
    ]
    positions = {
        job.job_id: QueuePosition(submitted_s=when, accrues_s=None, priority=priority)
        for job, when in zip(requeue, first, strict=True)
    }
    lent: dict[int, int] = {}
    for _ in range(2):
        now = [
            replace(job, priority=job.priority + lent.get(job.job_id, 0), nice=-lent.get(job.job_id, 0))
            for job in requeue
        ]
        lent = restoring_boosts(positions, (*others, *now), lent, BASIC, NODES, now_s=NOW_S)
    for job in requeue:
        points = job.priority + lent[job.job_id]
        for each in others:
            was_before = (-each.priority, each.submitted_s) < (-priority, positions[job.job_id].submitted_s)
            now_before = (-each.priority, each.submitted_s, each.job_id) < (
                -points,
                job.submitted_s,
                job.job_id,
            )
            if each.partition != "cpu" and was_before:
                assert now_before, (each, job, points)


def test_what_slurm_says_of_ages() -> None:
    said = {
        "PriorityType": "priority/multifactor",
        "PriorityWeightAge": "100",
        "PriorityMaxAge": "7-00:00:00",
        "PriorityCalcPeriod": "00:05:00",
        "PriorityFlags": "ACCRUE_ALWAYS,FAIR_TREE",
    }
    week = Ageing(basic=False, weight=100, longest_s=604_800, every_s=300, from_submission=True)
    assert Ageing.from_config(said) == week
    assert Ageing.from_config({"PriorityType": "priority/basic"}) == BASIC
