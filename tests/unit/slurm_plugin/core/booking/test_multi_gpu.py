from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_plugin.core.booking.decide import decide
from slurm_plugin.core.booking.request import request_from
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.config.load import parse_config
from slurm_plugin.core.records.submission import MemoryEstimate, RequestedTasks, Rewrite, UserDirectives
from slurm_plugin.core.units import GIB

DDP = UserDirectives(gpus=2, memory_bytes=None)
NEED = MemoryEstimate(
    estimate_bytes=10 * GIB,
    upper_bytes=12 * GIB,
    confidence=0.99,
    source="rad",
    smact=0.4,
    profile_key="ab12",
)
STATED = replace(NEED, source="stated")


def decided(
    stated: UserDirectives = DDP,
    estimate: MemoryEstimate | None = NEED,
    *,
    max_shard_gpus: int = 4,
    share: bool = True,
    guard: bool = True,
    on_overrun: str = "requeue",
    **message: Any,
) -> Rewrite:
    partition = {"collocate": True, "gpu_memory_mib": 40_000, "share_multi_gpu": share}
    table = {"default_partition": "gpu", "partition": {"gpu": partition | {"on_overrun": on_overrun}}}
    config = parse_config({**table, "features": {"guard": guard}}, origin="rad.toml")
    return decide(
        request_from({"user_id": 1000, **message}),
        stated,
        estimate,
        config=config,
        whole_as_gpu=True,
        max_shard_gpus=max_shard_gpus,
    )


ONE_EACH = {"num_tasks": "2", "ntasks_per_node": "2", "min_nodes": "1", "max_nodes": "1"} | {
    "gres_flags": "one-task-per-sharing"
}


@pytest.mark.parametrize(
    ("message", "fields", "tasks"),
    [
        ({"gres": "gres:gpu:2"}, {"gres": "", "cpus": 1}, RequestedTasks()),
        ({"gres": "gres/gpu:2,gres/nvme:5"}, {"gres": "nvme:5", "cpus": 1}, RequestedTasks()),
        ({"tres_per_job": "gres:gpu:2"}, {"tres_per_job": "", "cpus": 1}, RequestedTasks()),
        ({"gres": "gpu:2", "num_tasks": 2}, {"gres": "", "cpus": 1}, RequestedTasks(tasks=2)),
        (
            {"gres": "gpu:2", "tres_per_task": "cpu=3", "cpus_per_task": 3},
            {"gres": "", "per_task": "cpu=2,", "cpus": 2},
            RequestedTasks(cpus=4),
        ),
        (
            {"tres_per_task": "gres/gpu=1", "num_tasks": 2},
            {"cpus": 1},
            RequestedTasks(tasks=2, own_gpu=True),
        ),
        (
            {
                "tres_per_job": "gpu:2",
                "cpus_per_tres": "gpu:4",
                "mem_per_tres": "gpu:500",
                "tres_bind": "gpu:1",
            },
            {
                "tres_per_job": "",
                "cpus": 4,
                "cpus_per_tres": "",
                "mem_per_tres": "",
                "min_mem_per_node": "1000",
            }
            | {"tres_bind": ""},
            RequestedTasks(cpus=8),
        ),
    ],
)
def test_two_gpus_become_a_task_for_each_and_its_shards(
    message: dict[str, Any], fields: dict[str, Any], tasks: RequestedTasks
) -> None:
    rewrite = decided(**message)
    cpus = fields.pop("cpus")
    expected = {"tres_per_task": fields.pop("per_task", "") + "gres/shard:12", **ONE_EACH, **fields}
    assert rewrite.fields == {**expected, "cpus_per_task": str(cpus), "min_cpus": str(2 * cpus)}
    booking = rewrite.booking
    assert booking is not None
    assert (booking.kind, booking.gpus, booking.shards, booking.by_task) == ("shared", 2, 24, tasks)
    assert (booking.memory_bytes, booking.estimate_bytes, booking.smact) == (12 * GIB, 10 * GIB, 0.4)
    assert rewrite.messages == (
        "RAD: estimated 10.0 GiB; booked 12.0 GiB on each of 2 GPUs (99th percentile)",
    )
    signed = signed_comment.signed_booking(booking, user_id=7, key=bytes(32))
    assert signed_comment.read_signed_booking(signed, user_id=7, key=bytes(32)) == booking


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"share": False}, "jobs with several GPUs do not share them in this partition"),
        ({"estimate": None}, ""),
        ({"stated": replace(DDP, policy="exclusive")}, ""),
        ({"guard": False}, "the guard, which enforces limits without MPS, is off"),
        ({"on_overrun": "warn"}, "the guard, which enforces limits without MPS, is off"),
        ({"max_shard_gpus": 0}, "shards of at most 1 GPU"),
        ({"max_shard_gpus": 1}, "shards of at most 1 GPU"),
        ({"stated": UserDirectives(profile="x")}, "unknown without #RAD gpus=2"),
        ({"stated": UserDirectives(gpus=4)}, "#RAD gpus=4 differs from 2 requested GPUs"),
        ({"num_tasks": 3}, "3 tasks on 2 GPUs"),
        ({"interactive": True}, "srun and salloc"),
        ({"tres_freq": "gpu:high"}, "--gpu-freq"),
        ({"estimate": replace(NEED, upper_bytes=39 * GIB)}, "booked 2 whole GPUs"),
        (
            {"estimate": replace(NEED, estimate_bytes=50 * GIB, upper_bytes=60 * GIB)},
            "for each process, and one GPU has",
        ),
    ],
)
def test_a_job_that_cannot_share_its_gpus_keeps_them_and_hears_why(
    changes: dict[str, Any], says: str
) -> None:
    rewrite = decided(**{"gres": "gpu:2", **changes})
    assert rewrite.fields == {} and rewrite.booking is not None
    assert (rewrite.booking.kind, rewrite.booking.gpus, rewrite.reason) == ("whole", 2, "multi-gpu")
    assert says in " ".join(rewrite.messages) and bool(says) == bool(rewrite.messages)


@pytest.mark.parametrize("tasks", [{}, {"num_tasks": 1}, {"num_tasks": 4}])
def test_four_gpus_are_shared_by_one_task_or_four(tasks: dict[str, int]) -> None:
    rewrite = decided(UserDirectives(gpus=4), gres="gpu:4", **tasks)
    assert rewrite.booking is not None and rewrite.booking.shards == 48
    assert (rewrite.fields["num_tasks"], rewrite.fields["tres_per_task"]) == ("4", "gres/shard:12")
    assert decided(UserDirectives(gpus=4), gres="gpu:4", num_tasks=2).fields == {}
    assert decided(UserDirectives(gpus=4), gres="gpu:4", max_shard_gpus=3).fields == {}


def test_what_is_stated_for_each_process_needs_no_count_of_gpus() -> None:
    assert (
        decided(UserDirectives(memory_bytes=12 * GIB), STATED, tres_per_job="gpu:2").fields["num_tasks"]
        == "2"
    )


@pytest.mark.parametrize(
    ("message", "cpus"), [({"gres": "gpu:1"}, 1), ({"tres_per_job": "gpu:1", "num_tasks": 3}, 3)]
)
def test_one_gpu_is_requested_by_task_where_slurm_could_split_its_shards(
    message: dict[str, Any], cpus: int
) -> None:
    """Slurm 24.11 gave shard:25 as 19 and 6 where two GPUs had 19 free each."""
    rewrite = decided(UserDirectives(memory_bytes=1), STATED, **message)
    shards = 12 * int(message.get("num_tasks", 1))
    assert rewrite.fields["tres_per_task"] == f"gres/shard:{shards}" and "gres_flags" not in rewrite.fields
    assert (rewrite.fields["num_tasks"], rewrite.fields["min_cpus"]) == ("1", str(cpus))
    assert rewrite.booking is not None and rewrite.booking.by_task == RequestedTasks(tasks=cpus)


def test_a_users_own_shards_are_requested_by_task_too() -> None:
    rewrite = decided(UserDirectives(), None, gres="gres:shard:7")
    assert rewrite.fields["tres_per_task"] == "gres/shard:7" and rewrite.booking is not None
    assert (rewrite.booking.shards, rewrite.booking.by_task) == (7, RequestedTasks())
    assert decided(UserDirectives(), None, gres="gres:shard:7", max_shard_gpus=0).fields == {}


def test_shards_of_a_users_own_tasks_may_lie_on_as_many_gpus() -> None:
    """The Prolog queries Slurm where they do: without --gres-flags=one-task-per-sharing it may be one GPU."""
    own = {"tres_per_task": "gres/shard:5", "num_tasks": 2}
    booking = decided(UserDirectives(), None, **own).booking
    assert booking is not None and booking.changed
    assert (booking.kind, booking.gpus, booking.memory_bytes) == ("shared", 2, 5 * GIB)
    for max_shard_gpus in (0, 1):
        few = decided(UserDirectives(), None, max_shard_gpus=max_shard_gpus, **own).booking
        assert few is not None and (few.gpus, few.changed) == (1, True)
