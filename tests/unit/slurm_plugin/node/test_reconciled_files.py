"""What a reconciliation does with the files that tell jobs' tasks where they run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeClock, FakeSlurm

from lab.bare_node import make_bare_node
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.files.atomic import draft_of
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.reconcile import YOUNG_S, NodeEvidence
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.node import reconcile as module
from slurm_plugin.node.node import Node
from slurm_plugin.node.reconcile import reconcile_node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node on which no job lives."""
    found = Node.here(load_config(make_bare_node(tmp_path, gpus=1, gpu_gib=10)), {})
    return replace(found, clock=FakeClock(), slurm=FakeSlurm, proc=tmp_path / "proc")  # type: ignore[arg-type]


def recorded(node: Node) -> list[str]:
    """Return the jobs that the next reconciliation looks at again."""
    return [path.name for path in node.run.glob("unconfirmed/*")]


@pytest.mark.parametrize(("age_s", "stays"), [(0.0, True), (YOUNG_S, True), (YOUNG_S + 1, False)])
def test_a_job_that_was_refused_a_moment_ago_is_still_refused(node: Node, age_s: float, stays: bool) -> None:
    """Its tasks may be on their way: without the file they would start next to an exclusive job."""
    file = node.job_file(7)
    now_s = node.clock.monotonic_s()
    file.refuse("no idle GPU", boot_id=node.store.boot_id, now_s=now_s - age_s)
    reconcile_node(node, ())
    assert file.exists() == stays
    assert recorded(node) == ([] if stays else ["7"]), "the next reconciliation checks whether it runs"


def test_a_file_of_a_job_that_was_let_start_is_taken_away_without_a_word(node: Node) -> None:
    file = node.job_file(7)
    then_s = node.clock.monotonic_s() - YOUNG_S - 1
    file.mark({"RAD_KIND": "whole"}, boot_id=node.store.boot_id, now_s=then_s)
    reconcile_node(node, ())
    assert recorded(node) == [] and not file.exists()


def test_what_a_job_with_an_allocation_is_reported_stays(node: Node) -> None:
    """Of a rerun that was placed just now; its file may be of any age where the clock was wrong."""
    now_s = node.clock.monotonic_s()
    allocation = Allocation(
        job_id=7,
        user_id=1000,
        kind="shared",
        gpus=("GPU-0",),
        gpu_indices=(0,),
        booked_bytes=1,
        created_s=now_s,
    )
    node.run.mkdir()
    node.store.write(Ledger(allocations=(allocation,)))
    file = node.job_file(7)
    file.mark({"RAD_KIND": "shared"}, boot_id=node.store.boot_id, now_s=now_s - 10 * YOUNG_S)
    assert reconcile_node(node, ()).released == () and file.exists()


@pytest.mark.parametrize("gone", [True, False])
def test_what_an_epilog_has_just_given_back_does_not_return(
    node: Node, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """It takes the file away before the allocation, and its job's last processes may still be seen."""
    allocation = Allocation(
        job_id=7,
        user_id=1000,
        kind="shared",
        gpus=("GPU-0",),
        gpu_indices=(0,),
        booked_bytes=1,
        created_s=1.0,
    )
    node.run.mkdir()
    node.store.write(Ledger())
    if not gone:
        node.job_file(7).mark({}, boot_id=node.store.boot_id, now_s=1.0)
    seen = NodeEvidence(placed={7: allocation}, steps=frozenset({7}))
    monkeypatch.setattr(module, "look", lambda *_: seen)
    assert reconcile_node(node, ()).restored == (() if gone else (7,))
    assert (node.store.read().ledger.of_job(7) is None) == gone


@pytest.mark.parametrize(
    "name",
    [
        "node.json",
        "placed/7",
        "ended/7",
        "unconfirmed/7",
        "waiting/7",
        "monitor/window.json",
        "monitor/jobs/7.json",
    ],
)
def test_the_draft_of_a_writer_that_was_killed_goes(node: Node, name: str) -> None:
    """Each writer has one of its own, so no other job writes over it."""
    drafts = [draft_of(node.run / name).with_suffix(suffix) for suffix in (".new", ".1.new")]
    for draft, age_s in zip(drafts, (YOUNG_S - 1, YOUNG_S + 1), strict=True):
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.touch()
        os.utime(draft, (node.clock.now_s() - age_s,) * 2)
    reconcile_node(node, ())
    assert [draft.exists() for draft in drafts] == [True, False]
