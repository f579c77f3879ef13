"""Which jobs a reconciliation puts back into the queue: those of which Slurm is sure and nothing is here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_proc import slurmstepd
from fakes import FakeSlurm

from lab.bare_node import make_bare_node
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.node.facts import learn_facts
from slurm_plugin.node.node import Node
from slurm_plugin.node.reconcile import run_again
from slurm_plugin.node.unconfirmed import earlier_unconfirmed
from slurm_plugin.slurm.control import JobView

LOST = JobView(job_id=7, user_id=1000, state="RUNNING", node="n0", restarts=2)


def node_of(folder: Path, job: JobView | None, *, name: str = "n0") -> tuple[Node, FakeSlurm]:
    slurm = FakeSlurm() if job is None else FakeSlurm(job)
    node = Node.here(load_config(make_bare_node(folder, gpus=1, gpu_gib=10)), {})
    node = replace(node, slurm=lambda: slurm, proc=folder / "proc")  # type: ignore[arg-type, return-value]
    learn_facts(node, name, ())
    return node, slurm


def is_requeued(node: Node, slurm: FakeSlurm, restart: int | None) -> bool:
    said = run_again(node, 7, restart)
    assert slurm.reported == ([(7, "requeue")] if said else [])
    return said


@pytest.mark.parametrize("restart", [2, None])
def test_a_job_of_which_nothing_is_here_starts_again(tmp_path: Path, restart: int | None) -> None:
    assert is_requeued(*node_of(tmp_path, LOST), restart)


@pytest.mark.parametrize(("restart", "again"), [(2, True), (None, False)])
def test_a_job_that_starts_is_lost_only_if_it_is_the_run_that_was_unconfirmed(
    tmp_path: Path, restart: int | None, again: bool
) -> None:
    assert is_requeued(*node_of(tmp_path, replace(LOST, state="CONFIGURING")), restart) == again


@pytest.mark.parametrize(
    ("job", "restart"),
    [
        (None, 2),
        (replace(LOST, node="n1"), 2),
        (replace(LOST, batch=False), 2),
        (replace(LOST, requeue=False), 2),
        (replace(LOST, state="COMPLETING"), 2),
        (replace(LOST, state="SUSPENDED"), None),
        (LOST, 1),
    ],
    ids=["gone", "elsewhere", "no script", "--no-requeue", "ends", "suspended", "another run"],
)
def test_no_other_job_is_touched(tmp_path: Path, job: JobView | None, restart: int | None) -> None:
    assert not is_requeued(*node_of(tmp_path, job), restart)


def test_a_node_that_does_not_know_its_name_touches_nothing(tmp_path: Path) -> None:
    assert not is_requeued(*node_of(tmp_path, replace(LOST, node=""), name=""), 2)


def test_a_job_with_a_prologs_file_is_not_lost(tmp_path: Path) -> None:
    node, slurm = node_of(tmp_path, LOST)
    node.job_file(7).refuse("the GPU is in use", boot_id=node.store.boot_id, now_s=1.0)
    assert not is_requeued(node, slurm, 2)


def test_a_job_with_a_step_is_not_lost(tmp_path: Path) -> None:
    node, slurm = node_of(tmp_path, LOST)
    slurmstepd(node.proc, 10, "7.batch")
    assert not is_requeued(node, slurm, 2)


def test_a_slurm_that_does_not_answer_is_informed_nothing(tmp_path: Path) -> None:
    node, slurm = node_of(tmp_path, LOST)
    slurm.answers = False
    assert not is_requeued(node, slurm, 2)


def test_a_slurm_that_does_not_answer_leaves_the_doubt_for_the_next_reconciliation(tmp_path: Path) -> None:
    class Silent(FakeSlurm):
        def job(self, job_id: int) -> JobView | None:
            raise SlurmError("Unable to contact slurm controller")

    node, _ = node_of(tmp_path, LOST)
    node = replace(node, slurm=lambda: Silent(LOST))  # type: ignore[arg-type, return-value]
    assert not run_again(node, 7, 2)
    assert earlier_unconfirmed(node.run, now_s=0.0) == ((7, 2),)
