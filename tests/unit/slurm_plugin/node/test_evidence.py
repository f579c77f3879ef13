"""What a reconciliation takes for proof that a job is on this node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_proc import process, slurmstepd
from fakes import FakeSlurm

from lab.bare_node import make_bare_node
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.ledger.job_file import PlacedFile
from slurm_plugin.core.ledger.reconcile import SlurmState
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import GIB
from slurm_plugin.node.evidence import look, present
from slurm_plugin.node.facts import NodeFacts
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.control import JobView

FACTS = NodeFacts(name="n0")


def node_of(folder: Path, *jobs: JobView) -> tuple[Node, FakeSlurm]:
    slurm = FakeSlurm(*jobs)
    node = Node.here(load_config(make_bare_node(folder, gpus=1, gpu_gib=10)), {})
    return replace(node, slurm=lambda: slurm, proc=folder / "proc"), slurm  # type: ignore[arg-type, return-value]


def on_gpu(proc: Path, pid: int, *, user: int = 1, parent: int = 1, **environment: str) -> GpuProcess:
    process(proc, pid, users=[user] * 4, parent=parent, environment=environment)
    return GpuProcess(pid=pid, memory_bytes=GIB)


def reading(index: int, *processes: GpuProcess) -> GpuReading:
    return GpuReading(
        uuid=f"GPU-{index}",
        index=index,
        name="a GPU",
        memory_total_bytes=10 * GIB,
        memory_reserved_bytes=0,
        memory_used_bytes=len(processes) * GIB,
        time_s=0.0,
        smact=0.0,
        smact_source="simulated",
        processes=processes,
    )


def test_only_what_root_alone_can_make_proves_that_a_job_is_on_a_gpu(tmp_path: Path) -> None:
    node, _ = node_of(tmp_path)
    slurmstepd(node.proc, 10, "5.0")
    job_5 = [on_gpu(node.proc, pid, parent=10) for pid in (11, 12)]
    says_6 = on_gpu(node.proc, 13, SLURM_JOB_ID="6")
    nobodys = on_gpu(node.proc, 14)
    gone = GpuProcess(pid=99, memory_bytes=GIB)
    seen = look(node, [reading(0, job_5[0], says_6), reading(1, job_5[1], nobodys, gone)], (), FACTS)
    assert (seen.on_gpus, seen.steps) == ({5: {"GPU-0", "GPU-1"}}, {5})
    assert seen.shows(5) and not seen.shows(6)


def test_a_process_of_another_user_is_not_the_jobs(tmp_path: Path) -> None:
    """What a job's owner starts as another user (su) is none of the job."""
    node, _ = node_of(tmp_path)
    slurmstepd(node.proc, 10, "5.0")
    allocation = Allocation(
        job_id=5, user_id=1, kind="shared", gpus=("GPU-0",), gpu_indices=(0,), booked_bytes=GIB, created_s=1.0
    )
    files = (PlacedFile(job_id=5, created_s=1.0, allocation=allocation),)
    his, others = (on_gpu(node.proc, 10 + user, parent=10, user=user) for user in (1, 2))
    assert look(node, [reading(0, his), reading(1, others)], files, FACTS).on_gpus == {5: {"GPU-0"}}


def test_a_prologs_file_is_proof_only_where_it_says_what_the_job_holds(tmp_path: Path) -> None:
    node, _ = node_of(tmp_path)
    allocation = Allocation(
        job_id=7, user_id=1, kind="shared", gpus=("GPU-0",), gpu_indices=(0,), booked_bytes=GIB, created_s=1.0
    )
    files = (
        PlacedFile(job_id=7, created_s=1.0, allocation=allocation),
        PlacedFile(job_id=8, created_s=1.0, allocation=None),
    )
    assert look(node, (), files, FACTS).placed == {7: allocation}


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"state": "RUNNING", "node": "n0"}, {"launched_here": True, "running": True}),
        ({"state": "COMPLETING", "node": "n0"}, {"launched_here": True}),
        ({"state": "RUNNING", "node": "n0", "reason": "Prolog"}, {"starting_here": True, "running": True}),
        ({"state": "CONFIGURING", "node": "n0"}, {"starting_here": True, "running": True}),
        ({"state": "RUNNING", "node": "n0", "batch": False}, {"running": True}),
        ({"state": "RUNNING", "node": ""}, {"running": True}),
    ],
    ids=str,
)
def test_what_slurm_says_of_a_job(tmp_path: Path, job: dict[str, object], says: dict[str, bool]) -> None:
    node, _ = node_of(tmp_path, JobView(job_id=5, user_id=1, restarts=2, **job))  # type: ignore[arg-type]
    nothing = SlurmState(restarts=2, launched_here=False)
    assert present(node, FACTS) == {5: replace(nothing, **says)}  # type: ignore[arg-type]


def test_no_answer_is_not_no_jobs(tmp_path: Path) -> None:
    node, slurm = node_of(tmp_path)
    assert present(node, FACTS) == {}
    slurm.answers = False
    assert present(node, FACTS) is None


def test_on_a_node_whose_name_is_unknown_no_script_is_taken_to_run_here(tmp_path: Path) -> None:
    node, _ = node_of(tmp_path, JobView(job_id=5, user_id=1, state="RUNNING", node=""))
    assert present(node, NodeFacts()) == {5: SlurmState(restarts=0, launched_here=False, running=True)}
