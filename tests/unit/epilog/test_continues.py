"""An Epilog with the restart count of a run that goes on is that of an earlier run, and late."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fake_proc import slurmstepd
from fakes import FakeClock, FakeSlurm

from epilog.continues import goes_on
from lab.bare_node import make_bare_node
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.ledger.reconcile import LAUNCH_S
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.control import JobView

VIEW = JobView(job_id=7, user_id=0, state="RUNNING", node="n0", restarts=1)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "proc").mkdir()
    found = Node.here(load_config(make_bare_node(tmp_path, gpus=1, gpu_gib=10)), {})
    return replace(found, clock=FakeClock(), proc=tmp_path / "proc")


def allocation(node: Node, age_s: float) -> Allocation:
    return Allocation(
        job_id=7,
        user_id=os.geteuid(),
        kind="whole",
        gpus=("GPU-0",),
        gpu_indices=(0,),
        booked_bytes=1,
        created_s=node.clock.monotonic_s() - age_s,
        restart=1,
    )


def continues_after_query(node: Node, view: JobView | None, *, age_s: float = 1.0, ask: bool = True) -> bool:
    slurm = FakeSlurm() if view is None else FakeSlurm(view)
    slurm.answers = view is not None
    return goes_on(allocation(node, age_s), replace(node, slurm=lambda: slurm), ask=ask)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("ask", [True, False])
def test_a_run_with_a_slurmstepd_goes_on_whatever_its_age(node: Node, ask: bool) -> None:
    slurmstepd(node.proc, 1001, "7.batch")
    assert continues_after_query(node, None, age_s=3600.0, ask=ask)
    assert not goes_on(replace(allocation(node, 3600.0), job_id=8), node, ask=ask)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (VIEW, True),
        (replace(VIEW, state="CONFIGURING"), True),
        (replace(VIEW, state="COMPLETING"), False),
        (replace(VIEW, restarts=2), False),
        (replace(VIEW, state="PENDING"), False),
        (None, False),
    ],
)
def test_of_a_run_without_one_slurm_is_queried_while_it_may_be_launched(
    node: Node, view: JobView | None, expected: bool
) -> None:
    assert continues_after_query(node, view) == expected
    assert not continues_after_query(node, view, ask=False) and not continues_after_query(
        node, view, age_s=LAUNCH_S + 1
    )
