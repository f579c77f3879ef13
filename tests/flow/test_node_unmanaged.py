"""What no admin configured runs as without RAD, and what books a GPU does not start without one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeClock, FakeSlurm

from prolog.no_gpus import why_no_start
from prolog.unmanaged import as_given, note
from slurm_plugin.core.booking.gres_text import parse_gres
from slurm_plugin.core.comments.signed_comment import signed_booking
from slurm_plugin.core.config.load import parse_config
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.store import LedgerStore
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB
from slurm_plugin.node.facts import NodeFacts, NodeGpu, facts_of, pin_of, read_facts
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.control import JobView, NodeView
from slurm_plugin.slurm.node.hook_env import HookJob

KEY = b"u" * 32
READINGS = [
    GpuReading(
        uuid=f"GPU-{index}",
        index=index,
        name="test",
        memory_total_bytes=141 * GIB,
        memory_used_bytes=0,
        time_s=0.0,
    )
    for index in range(2)
]
FACTS = NodeFacts(
    name="n0",
    partitions=("gpu", "plain"),
    shards=32,
    gpus=tuple(NodeGpu(uuid=f"GPU-{index}", index=index, usable_bytes=141 * GIB) for index in range(2)),
)


def job(partition: str = "plain", *, gpu_indices: tuple[int, ...] = (1,), comment: str = "") -> HookJob:
    return HookJob(
        job_id=7,
        user_id=os.geteuid(),
        group_id=os.getegid(),
        partition=partition,
        gpu_indices=gpu_indices,
        comment=comment,
        node="n0",
    )


class Bench:
    """A node with two GPUs, 16 shards each, of a collocated partition and others."""

    def __init__(self, folder: Path, *, partitions: tuple[str, ...] = ("gpu", "plain")) -> None:
        (folder / "key").write_bytes(KEY)
        (folder / "key").chmod(0o600)
        self.slurm = FakeSlurm()
        self.slurm.nodes_by_name["n0"] = NodeView(name="n0", gres="gpu:2,shard:32", partitions=partitions)
        clock = FakeClock()
        config = parse_config(
            {
                "paths": {"run": str(folder / "run"), "key": str(folder / "key"), "slurm_conf": "/nowhere"},
                "partition": {
                    "gpu": {"collocate": True, "shards_per_gpu": 16},
                    "named": {"shards_per_gpu": 16},
                },
            },
            origin="test",
        )
        self.node = Node(
            config=config,
            clock=clock,
            store=LedgerStore(folder / "run", clock=clock, boot_id="b"),
            slurm=lambda: self.slurm,  # type: ignore[arg-type,return-value]
            slurm_conf=None,
            confined=False,
            proc=folder / "proc",
        )
        facts_of(self.node, "n0", READINGS)
        self.node.store.write(Ledger())

    def requests_gres(self, gres: str) -> None:
        self.slurm.views[7] = JobView(job_id=7, user_id=os.geteuid(), state="RUNNING", gres=gres)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_shard_is_worth_what_it_is_on_this_node_whatever_a_partition_says(bench: Bench) -> None:
    bench.requests_gres("gres:shard:4")
    given = note(bench.node, job())
    assert given is not None and bench.node.store.read().ledger.allocations == (given,)
    assert (given.kind, given.gpus, given.managed) == ("shared", ("GPU-1",), False)
    assert given.booked_bytes == 4 * 141 * GIB // 16


@pytest.mark.parametrize("gres", ["gres:gpu:1", "gres/mps:50", ""])
def test_anything_else_is_noted_as_a_whole_gpu(bench: Bench, gres: str) -> None:
    bench.requests_gres(gres)
    given = note(bench.node, job())
    assert given is not None and (given.kind, given.booked_bytes) == ("whole", 141 * GIB)


def test_of_a_silent_slurm_the_whole_is_noted(bench: Bench) -> None:
    bench.slurm.answers = False
    given = note(bench.node, job())
    assert given is not None and given.kind == "whole"


def test_mig_and_a_gpu_that_is_unknown_to_rad_are_not_noted() -> None:
    assert as_given(job(), FACTS, parse_gres("gres/gpu:1g.10gb:1"), now_s=0.0) is None
    assert as_given(job(gpu_indices=(9,)), FACTS, (), now_s=0.0) is None


def test_where_no_job_of_rads_can_come_nothing_is_queried_or_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path, partitions=("plain",))
    queries = bench.slurm.queries
    assert note(bench.node, job()) is None
    assert bench.slurm.queries == queries
    assert bench.node.store.read().ledger.allocations == ()


@pytest.mark.parametrize(
    ("partitions", "pin"),
    [(("gpu",), "bound"), (("gpu", "plain"), "slurm"), (("gpu", "named"), "slurm"), ((), "bound")],
)
def test_on_a_node_that_others_use_too_no_job_is_moved(
    tmp_path: Path, partitions: tuple[str, ...], pin: str
) -> None:
    bench = Bench(tmp_path, partitions=partitions)
    settings = bench.node.config.partitions["gpu"]
    assert pin_of(bench.node, settings, read_facts(bench.node) or NodeFacts()) == pin


def test_facts_are_queried_once_and_forgotten_at_a_reboot(bench: Bench, tmp_path: Path) -> None:
    queries = bench.slurm.queries
    assert facts_of(bench.node, "n0", READINGS).shard_bytes == 2 * 141 * GIB // 32
    assert bench.slurm.queries == queries
    bench.node.store.boot_id = "next"
    assert read_facts(bench.node) is None


def test_a_booked_job_without_indices_does_not_start(bench: Bench) -> None:
    signed = signed_booking(Booking(kind="shared", memory_bytes=GIB), user_id=os.geteuid(), key=KEY)
    assert why_no_start(bench.node, job("gpu", gpu_indices=(), comment=signed)) is not None
    assert bench.slurm.queries == 1, "the booking said it; only the facts were queried"


def test_a_job_whose_owner_took_the_gpu_out_of_it_starts_without(bench: Bench) -> None:
    """It went back into the queue without end: `scontrol update JobId=... TresPerNode=` leaves the signed booking."""
    changed = Booking(kind="shared", memory_bytes=GIB, changed=True)
    taken_out = job("gpu", gpu_indices=(), comment=signed_booking(changed, user_id=os.geteuid(), key=KEY))
    bench.requests_gres("gres:")
    assert why_no_start(bench.node, taken_out) is None
    bench.requests_gres("gres:shard:3")
    assert why_no_start(bench.node, taken_out) is not None
    bench.slurm.answers = False
    assert why_no_start(bench.node, taken_out) is not None


def test_a_job_of_several_nodes_may_have_its_gpus_on_others(bench: Bench) -> None:
    """Its Prolog requeued it without end: `sbatch --gpus=1 -n40` has a node without GPU where a node has 32 CPUs."""
    bench.requests_gres("gres:gpu:1")
    alone = job("gpu", gpu_indices=())
    assert why_no_start(bench.node, replace(alone, several_nodes=True)) is None
    assert why_no_start(bench.node, alone) is not None


@pytest.mark.parametrize(
    ("gres", "starts"), [("gres:gpu:1", False), ("gres/shard:3", False), ("", True), ("gres/nvme:1", True)]
)
def test_of_a_job_without_booking_and_indices_slurm_says_whether_it_wants_a_gpu(
    bench: Bench, gres: str, starts: bool
) -> None:
    bench.requests_gres(gres)
    assert (why_no_start(bench.node, job("gpu", gpu_indices=())) is None) == starts
    bench.slurm.answers = False
    assert why_no_start(bench.node, job("gpu", gpu_indices=())) is None
