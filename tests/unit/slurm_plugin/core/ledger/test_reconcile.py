from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.reconcile import (
    LAUNCH_S,
    YOUNG_S,
    NodeEvidence,
    SlurmState,
    doubtful,
    missing,
    never_launched,
    rebuild,
    reconcile,
)
from slurm_plugin.core.records.node import Allocation

NOW_S = 10_000.0
OLD_S = NOW_S - LAUNCH_S - 1


def allocation(job_id: int, *, created_s: float = OLD_S, restart: int = 0) -> Allocation:
    return Allocation(
        job_id=job_id,
        user_id=1000,
        kind="shared",
        gpus=(f"GPU-{job_id % 3}",),
        gpu_indices=(0,),
        booked_bytes=1,
        created_s=created_s,
        restart=restart,
    )


def left(evidence: NodeEvidence, *allocations: Allocation) -> list[int]:
    after = reconcile(Ledger(allocations=allocations), evidence, now_s=NOW_S)
    return [one.job_id for one in after.allocations]


def test_a_job_that_slurm_does_not_have_here_is_over_once_two_lists_lack_it() -> None:
    once, ledger = NodeEvidence(present={}), Ledger(allocations=(allocation(1, restart=2),))
    assert left(once, allocation(1, restart=2)) == [1]
    assert missing(ledger, once, now_s=NOW_S) == ((1, 2),)
    assert left(replace(once, missed=frozenset({(1, 2)})), allocation(1, restart=2)) == []
    assert left(replace(once, missed=frozenset({(1, 1), (2, 2)})), allocation(1, restart=2)) == [1]
    assert left(replace(once, unconfirmed=frozenset({(1, 2)})), allocation(1, restart=2)) == [1], (
        "seen in that list"
    )


@pytest.mark.parametrize(
    ("evidence", "age_s"),
    [
        (NodeEvidence(present=None), OLD_S),
        (NodeEvidence(present={1: SlurmState(restarts=0, launched_here=True)}), OLD_S),
        (NodeEvidence(present={}, steps=frozenset({1})), OLD_S),
        (NodeEvidence(present={}), NOW_S - YOUNG_S),
    ],
    ids=["Slurm is silent", "Slurm lists it", "it has a step", "it is young"],
)
def test_what_is_not_missing(evidence: NodeEvidence, age_s: float) -> None:
    assert missing(Ledger(allocations=(allocation(1, created_s=age_s),)), evidence, now_s=NOW_S) == ()


@pytest.mark.parametrize(
    "evidence",
    [
        NodeEvidence(present={}, missed=frozenset({(1, 0)}), steps=frozenset({1})),
        NodeEvidence(present={}, missed=frozenset({(1, 0)}), on_gpus={1: frozenset({"GPU-1"})}),
        NodeEvidence(present=None, missed=frozenset({(1, 0)})),
        NodeEvidence(present={1: SlurmState(restarts=0, launched_here=False)}),
    ],
    ids=["it has a step", "it is on a GPU", "Slurm is silent", "Slurm has it, and it need not have a step"],
)
def test_what_shows_life_or_nothing_keeps_an_allocation(evidence: NodeEvidence) -> None:
    assert left(evidence, allocation(1)) == [1]


def test_a_young_job_is_not_unconfirmed() -> None:
    young = allocation(1, created_s=NOW_S - YOUNG_S)
    assert left(NodeEvidence(present={}, missed=frozenset({(1, 0)})), young) == [1]
    assert doubtful(Ledger(allocations=(young,)), NodeEvidence(), now_s=NOW_S) == ()


def test_a_batch_job_that_runs_without_a_process_is_over() -> None:
    """slurmctld was killed just after a put-back, and still believes in the run that was ended."""
    twice = NodeEvidence(
        present={1: SlurmState(restarts=0, launched_here=True)}, unconfirmed=frozenset({(1, 0)})
    )
    assert left(twice, allocation(1)) == []
    assert left(twice, allocation(1, created_s=NOW_S - LAUNCH_S + 1)) == [1]


def test_one_look_that_misses_a_process_releases_nothing() -> None:
    once = NodeEvidence(present={1: SlurmState(restarts=1, launched_here=True, running=True)})
    assert left(once, allocation(1, restart=1)) == [1]
    assert left(
        replace(once, unconfirmed=frozenset({(1, 0), (1, None), (2, 1)})), allocation(1, restart=1)
    ) == [1]
    assert left(replace(once, unconfirmed=frozenset({(1, 1)})), allocation(1, restart=1)) == []
    seen = replace(once, unconfirmed=frozenset({(1, 1)}), steps=frozenset({1}))
    assert left(seen, allocation(1, restart=1)) == [1]


def test_a_prolog_may_take_its_time_but_not_outlive_its_slurmd() -> None:
    """slurmd was killed during the Prolog: the next one knows nothing of the run, and slurmctld waits without end."""
    says = {1: SlurmState(restarts=0, launched_here=False, starting_here=True, running=True)}
    slow = NodeEvidence(present=says, slurmd_since_s=OLD_S - 1)
    orphaned = NodeEvidence(present=says, slurmd_since_s=OLD_S + 1)
    for evidence, over in ((slow, False), (NodeEvidence(present=says), False), (orphaned, True)):
        assert left(evidence, allocation(1)) == [1]
        assert left(replace(evidence, unconfirmed=frozenset({(1, 0)})), allocation(1)) == (
            [] if over else [1]
        )
        unconfirmed = never_launched(Ledger(allocations=(allocation(1),)), evidence, now_s=NOW_S)
        assert unconfirmed == (((1, 0),) if over else ())
    orphaned = replace(orphaned, unconfirmed=frozenset({(1, 0)}))
    young = allocation(1, created_s=NOW_S - YOUNG_S)
    assert left(replace(orphaned, slurmd_since_s=NOW_S), young) == [1]
    assert left(replace(orphaned, slurmd_since_s=NOW_S), allocation(1, created_s=NOW_S - YOUNG_S - 1)) == []


def test_an_earlier_run_of_a_job_that_was_requeued_is_over() -> None:
    says = {1: SlurmState(restarts=2, launched_here=False)}
    assert left(NodeEvidence(present=says), allocation(1, restart=1)) == []
    assert left(NodeEvidence(present=says), allocation(1, restart=2)) == [1]


def test_a_living_job_without_its_allocation_gets_it_back() -> None:
    lost = allocation(1)
    assert left(NodeEvidence(placed={1: lost}, steps=frozenset({1}))) == [1]
    assert left(NodeEvidence(placed={1: lost})) == [], "nothing shows that it lives"
    later = replace(lost, restart=1)
    after = reconcile(
        Ledger(allocations=(later,)), NodeEvidence(placed={1: lost}, steps=frozenset({1})), now_s=NOW_S
    )
    assert after.allocations == (later,)


def test_a_lost_ledger_comes_back_from_files_and_from_what_lives() -> None:
    evidence = NodeEvidence(
        placed={1: allocation(1), 2: allocation(2), 3: allocation(3, created_s=NOW_S - 1)},
        steps=frozenset({1, 4}),
        present={},
        missed=frozenset({(2, 0)}),
    )
    found = rebuild(evidence, {4: allocation(4)}, now_s=NOW_S)
    assert {one.job_id for one in found.allocations} == {1, 3, 4}, "2 is over, 3 may be about to start"


JOBS = st.integers(1, 6)
AGES = st.floats(0, 4 * LAUNCH_S)
ALLOCATIONS = st.builds(
    allocation, JOBS, created_s=AGES.map(lambda age_s: NOW_S - age_s), restart=st.integers(0, 2)
)
EVIDENCE = st.builds(
    NodeEvidence,
    steps=st.frozensets(JOBS),
    on_gpus=st.dictionaries(JOBS, st.just(frozenset({"GPU-1"}))),
    placed=st.lists(ALLOCATIONS, max_size=4).map(lambda found: {one.job_id: one for one in found}),
    present=st.none()
    | st.dictionaries(JOBS, st.builds(SlurmState, restarts=st.integers(0, 3), launched_here=st.booleans())),
)
LEDGERS = st.lists(ALLOCATIONS, max_size=6, unique_by=lambda one: one.job_id).map(
    lambda found: Ledger(allocations=tuple(found))
)


@given(ledger=LEDGERS, evidence=EVIDENCE)
def test_a_reconciliation_is_safe_whatever_it_finds(ledger: Ledger, evidence: NodeEvidence) -> None:
    after = reconcile(ledger, evidence, now_s=NOW_S)
    now = {one.job_id: one for one in after.allocations}
    assert len(now) == len(after.allocations)
    for one in ledger.allocations:
        if evidence.shows(one.job_id) or evidence.present is None or NOW_S - one.created_s <= YOUNG_S:
            assert now.get(one.job_id) == one, "what lives, is young or is not queried is never touched"
    before = {one.job_id for one in ledger.allocations}
    assert all(job_id in evidence.steps for job_id in now.keys() - before)
    assert reconcile(after, evidence, now_s=NOW_S) == after, "and a second one finds nothing more"


@given(ledger=LEDGERS, evidence=EVIDENCE)
def test_after_a_reconciliation_with_slurm_nothing_of_the_dead_is_left(
    ledger: Ledger, evidence: NodeEvidence
) -> None:
    missed = frozenset((one.job_id, one.restart) for one in (*ledger.allocations, *evidence.placed.values()))
    evidence = replace(evidence, present=evidence.present or {}, missed=missed)
    after = reconcile(ledger, evidence, now_s=NOW_S + LAUNCH_S + YOUNG_S)
    for one in after.allocations:
        assert evidence.shows(one.job_id) or one.job_id in (evidence.present or {})


@given(ledger=LEDGERS, evidence=EVIDENCE, later_s=st.floats(0, 100))
def test_age_alone_releases_nothing(ledger: Ledger, evidence: NodeEvidence, later_s: float) -> None:
    silent = replace(evidence, present=None, placed={})
    after = reconcile(ledger, silent, now_s=NOW_S + later_s)
    assert after.allocations == ledger.allocations


def test_only_our_own_run_that_slurm_takes_for_running_and_that_had_its_time_runs_again() -> None:
    says = SlurmState(restarts=0, launched_here=False, starting_here=True, running=True)
    evidence = NodeEvidence(present={1: says}, slurmd_since_s=NOW_S)

    def unconfirmed(one: Allocation, says: SlurmState = says) -> tuple[tuple[int, int], ...]:
        return never_launched(Ledger(allocations=(one,)), replace(evidence, present={1: says}), now_s=NOW_S)

    assert unconfirmed(allocation(1)) == ((1, 0),)
    assert unconfirmed(replace(allocation(1), managed=False)) == ()
    assert unconfirmed(allocation(1), replace(says, restarts=1)) == (), "it runs again already"
    assert unconfirmed(allocation(1), replace(says, running=False)) == (), "it is on its way out"
    assert unconfirmed(allocation(1, created_s=NOW_S - YOUNG_S)) == (), (
        "its Prolog may have been started again"
    )


@pytest.mark.parametrize(
    "alive",
    [{"steps": frozenset({1})}, {"on_gpus": {1: frozenset({"GPU-1"})}}],
    ids=["it has a step", "it is on a GPU"],
)
def test_a_run_that_lives_is_never_run_again_and_slurm_is_not_queried_about_it(alive: dict[str, Any]) -> None:
    says = SlurmState(restarts=0, launched_here=True, running=True)
    dead = NodeEvidence(present={1: says}, slurmd_since_s=NOW_S)
    ledger = Ledger(allocations=(allocation(1),))
    assert never_launched(ledger, dead, now_s=NOW_S) == ((1, 0),)
    assert never_launched(ledger, replace(dead, **alive), now_s=NOW_S) == ()
    assert doubtful(ledger, dead, now_s=NOW_S) == (allocation(1),)
    assert doubtful(ledger, replace(dead, **alive), now_s=NOW_S) == ()


def test_what_slurm_does_not_have_is_not_run_again() -> None:
    assert never_launched(Ledger(allocations=(allocation(1),)), NodeEvidence(present={}), now_s=NOW_S) == ()
    assert never_launched(Ledger(allocations=(allocation(1),)), NodeEvidence(present=None), now_s=NOW_S) == ()
