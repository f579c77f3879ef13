from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.placement.choose import Pin, choose_gpu
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation, Demand, Placement
from slurm_plugin.core.records.submission import BookingKind
from slurm_plugin.core.units import GIB, MIB

NOW_S = 10_000.0
LONG_AGO_S = 1_000.0
UNUSED = 9
"""A Slurm GPU index that no job uses: the policy chooses among the idle GPUs, or all where none is idle."""


def gpu(
    index: int,
    *,
    used: int = 0,
    smact: float | None = 0.0,
    processes: tuple[GpuProcess, ...] = (),
    **more: bool,
) -> GpuReading:
    return GpuReading(
        uuid=f"GPU-{index}",
        index=index,
        name="test",
        memory_total_bytes=40 * GIB,
        memory_used_bytes=used,
        smact=smact,
        time_s=NOW_S,
        processes=processes,
        mig=more.get("mig", False),
        healthy=more.get("healthy", True),
    )


def allocation(
    job_id: int,
    index: int,
    gib: int = 10,
    *,
    kind: BookingKind = "shared",
    gpu_index: int | None = None,
    created_s: float = LONG_AGO_S,
    smact: float | None = None,
) -> Allocation:
    return Allocation(
        job_id=job_id,
        user_id=1000,
        kind=kind,
        gpus=(f"GPU-{index}",),
        gpu_indices=(index if gpu_index is None else gpu_index,),
        booked_bytes=gib * GIB,
        created_s=created_s,
        smact=smact,
    )


def choose(
    readings: list[GpuReading],
    *allocations: Allocation,
    need: int | None = 10,
    kind: BookingKind = "shared",
    gpus: int = 1,
    gpu_indices: tuple[int, ...] = (UNUSED,),
    pin: Pin = "bound",
    owners: dict[int, int] | None = None,
    last: str | None = None,
    job_id: int = 99,
    restart: int = 0,
    unlimited: tuple[int, ...] = (),
    **settings: object,
) -> Placement:
    return choose_gpu(
        readings,
        Ledger(allocations=allocations, last_gpu=last),
        Demand(
            job_id=job_id,
            user_id=1000,
            kind=kind,
            gpus=gpus,
            booked_bytes=None if need is None else need * GIB,
            gpu_indices=gpu_indices,
            restart=restart,
        ),
        PartitionConfig(**settings),  # type: ignore[arg-type]
        pin=pin,
        now_s=NOW_S,
        owners=owners,
        unlimited=unlimited,
    )


def test_magm_takes_the_most_free_memory_after_bookings() -> None:
    # GPU 0 looks emptiest, but its neighbour has booked 30 GiB that it has not touched yet
    placement = choose([gpu(0), gpu(1, used=12 * GIB), gpu(2, used=20 * GIB)], allocation(1, 0, 30))
    assert placement.gpus == ("GPU-1",)


def test_memory_that_neighbours_have_touched_is_not_counted_twice() -> None:
    process = GpuProcess(pid=7, memory_bytes=20 * GIB)
    readings = [gpu(0, used=20 * GIB, processes=(process,)), gpu(1, used=25 * GIB)]
    assert choose(readings, allocation(1, 0, 20), allocation(2, 1, 0), owners={7: 1}).gpus == ("GPU-0",)


def test_where_the_driver_shows_no_memory_per_process_a_job_is_not_unmanaged() -> None:
    process = GpuProcess(pid=7, memory_bytes=None)
    readings = [gpu(0, used=20 * GIB, processes=(process,))]
    assert choose(readings, allocation(1, 0, 22), need=18, owners={7: 1}).gpus == ("GPU-0",)
    assert choose(readings, allocation(1, 0, 22), need=19, owners={7: 1}).requeue


def test_lug_takes_the_least_active_and_mug_the_most_active_that_fits() -> None:
    readings = [gpu(0, smact=0.5), gpu(1, smact=0.2), gpu(2, smact=0.1), gpu(3, smact=0.9)]
    neighbours = (allocation(1, 0), allocation(2, 1), allocation(4, 2), allocation(3, 3))
    assert choose(readings, *neighbours, policy="lug").gpus == ("GPU-2",)
    assert choose(readings, *neighbours, policy="mug").gpus == ("GPU-0",)


def test_round_robin_goes_on_after_the_last_one_and_around() -> None:
    readings = [gpu(0), gpu(1), gpu(2)]
    for last, following in ((None, "GPU-0"), ("GPU-0", "GPU-1"), ("GPU-2", "GPU-0")):
        assert choose(readings, policy="round_robin", last=last).gpus == (following,)


def test_exclusive_takes_idle_gpus_alone() -> None:
    readings = [gpu(0), gpu(1)]
    assert choose(readings, allocation(1, 0), policy="exclusive").gpus == ("GPU-1",)
    assert choose(readings, allocation(1, 0), allocation(2, 1), policy="exclusive").requeue


def test_a_gpu_at_the_activity_limit_takes_no_further_job() -> None:
    readings = [gpu(0, smact=0.80), gpu(1, used=30 * GIB, smact=0.79)]
    neighbours = (allocation(1, 0), allocation(2, 1, 0))
    assert choose(readings, *neighbours, need=8).gpus == ("GPU-1",)


def test_activity_of_a_young_neighbour_is_expected_before_the_window_shows_it() -> None:
    readings = [gpu(0, smact=0.0), gpu(1, smact=0.3)]
    young = allocation(
        1, 0, created_s=NOW_S - 9, smact=0.9
    )  # 0.9 times the 90 % of the window before its start
    assert choose(readings, young, allocation(2, 1), policy="lug").gpus == ("GPU-1",)
    old = allocation(1, 0, created_s=NOW_S - 90, smact=0.9)
    assert choose(readings, old, allocation(2, 1), policy="lug").gpus == ("GPU-0",)


def test_two_unknown_new_jobs_fill_a_gpu_until_they_are_measured() -> None:
    new_jobs = [allocation(n, 0, 1, created_s=NOW_S) for n in (1, 2)]
    readings = [gpu(0), gpu(1, used=20 * GIB, smact=0.7)]
    assert choose(readings, new_jobs[0], allocation(3, 1, 0)).gpus == ("GPU-0",)
    assert choose(readings, *new_jobs, allocation(3, 1, 0)).gpus == ("GPU-1",)


def test_a_saturated_node_places_on_the_least_active_or_waits() -> None:
    readings = [gpu(0, smact=0.99), gpu(1, smact=0.85)]
    neighbours = (allocation(1, 0), allocation(2, 1))
    placed = choose(readings, *neighbours)
    assert placed.gpus == ("GPU-1",) and "saturated" in placed.reason
    assert choose(readings, *neighbours, on_saturated="wait").requeue


def test_the_wait_for_compute_has_an_end() -> None:
    readings, neighbour = [gpu(0, smact=0.99)], allocation(1, 0)
    waits = [choose(readings, neighbour, on_saturated="wait", restart=n).requeue for n in range(7)]
    assert waits == [True] * 5 + [False] * 2
    assert not choose(readings, neighbour, on_saturated="wait", restart=1, saturated_waits=1).requeue


def test_unknown_need_requires_the_free_minimum() -> None:
    readings = [gpu(0, used=36 * GIB), gpu(1, used=34 * GIB)]
    assert choose(readings, need=None, margin_mib=0).gpus == ("GPU-1",)
    assert choose(readings[:1], need=None).requeue


def test_slurm_may_book_a_gpu_to_its_last_byte() -> None:
    assert choose([gpu(0)], allocation(1, 0, 30), need=10).gpus == ("GPU-0",)
    assert choose([gpu(0)], allocation(1, 0, 30), need=11).requeue


def test_a_margin_is_kept_where_a_user_holds_more_than_booked() -> None:
    process = GpuProcess(pid=7, memory_bytes=12 * GIB)
    reading = gpu(0, used=12 * GIB, processes=(process,))
    assert choose([reading], allocation(1, 0, 10), need=28, owners={7: 1}).requeue
    assert choose([reading], allocation(1, 0, 12), need=28, owners={7: 1}).gpus == ("GPU-0",)


@pytest.mark.parametrize(
    ("booked", "holds", "need", "overrun_gpus"),
    [(10, 30, 20, ("GPU-0",)), (10, 30, 31, ()), (10, 10, 31, ())],
    ids=["others hold what was booked here", "too much is booked", "no job uses too much"],
)
def test_a_job_without_the_memory_that_slurm_allocated_says_where_others_use_it(
    booked: int, holds: int, need: int, overrun_gpus: tuple[str, ...]
) -> None:
    readings = [gpu(0, used=holds * GIB, processes=(GpuProcess(pid=7, memory_bytes=holds * GIB),))]
    placement = choose(readings, allocation(1, 0, booked), need=need, owners={7: 1})
    assert placement.requeue and placement.overrun_gpus == overrun_gpus


@pytest.mark.parametrize(("gpus", "overrun_gpus"), [(1, ()), (2, ("GPU-1",)), (3, ("GPU-1", "GPU-2"))])
def test_no_more_gpus_are_missing_than_a_job_lacks(gpus: int, overrun_gpus: tuple[str, ...]) -> None:
    """On each of three GPUs a job holds too much; all of them would be stopped where one is enough."""
    holds = (15, 28, 30)
    rows = [(GpuProcess(pid=pid, memory_bytes=gib * GIB),) for pid, gib in enumerate(holds)]
    readings = [gpu(index, used=holds[index] * GIB, processes=rows[index]) for index in range(3)]
    there = [allocation(job, job, 5) for job in range(3)]
    placement = choose(
        readings,
        *there,
        gpus=gpus,
        gpu_indices=tuple(range(gpus)),
        owners={0: 0, 1: 1, 2: 2},
        margin_mib=0,
        need=20,
    )
    assert (placement.overrun_gpus, placement.requeue) == (overrun_gpus, gpus > 1)


@pytest.mark.parametrize("unlimited", [(99,), (1,)], ids=["the incoming job", "the job that is there"])
def test_what_nothing_holds_shares_with_no_job(unlimited: tuple[int, ...]) -> None:
    there = allocation(1, 0)
    assert choose([gpu(0), gpu(1)], there, unlimited=unlimited).gpus == ("GPU-1",)
    placement = choose([gpu(0)], there, unlimited=unlimited)
    assert placement.requeue and placement.unlimited
    assert not choose([gpu(0)], there, need=39).unlimited, "memory is lacking all the same"


def test_unmanaged_memory_is_respected() -> None:
    assert choose([gpu(0, used=35 * GIB)], need=10).requeue
    for margin_mib in (512, 1000):  # what a driver holds on an idle GPU is within any margin
        assert choose([gpu(0, used=66 * MIB)], need=39, margin_mib=margin_mib).gpus == ("GPU-0",)


@pytest.mark.parametrize("kind", ["shared", "whole"])
def test_mig_parents_sick_gpus_and_whole_holders_are_never_candidates(kind: BookingKind) -> None:
    readings = [gpu(0, mig=True), gpu(1, healthy=False), gpu(2)]
    full = choose(readings, allocation(1, 2, 40, kind="whole"), kind=kind)
    assert full.requeue and "idle" in full.reason and "MiB" not in full.reason, "memory is not what it lacks"
    assert choose(readings, kind=kind).gpus == ("GPU-2",)


def test_a_whole_job_prefers_its_own_indices_and_avoids_unmanaged_processes() -> None:
    readings = [gpu(0), gpu(1), gpu(2, used=30 * GIB), gpu(3)]
    assert choose(readings, kind="whole", gpu_indices=(3,)).gpus == ("GPU-3",)
    assert choose(readings, kind="whole", gpu_indices=(2,)).gpus == ("GPU-0",)
    little = [gpu(0, used=5 * GIB), gpu(1, used=2 * GIB)]
    assert choose(little, kind="whole", gpu_indices=(3,)).gpus == ("GPU-1",), "where least is used"
    only_unmanaged = choose([gpu(2, used=30 * GIB)], kind="whole", gpu_indices=(2,))
    assert only_unmanaged.gpus == ("GPU-2",), "Slurm would have started it there without RAD"


def test_several_gpus_are_distinct_and_idle_or_none() -> None:
    readings = [gpu(index) for index in range(4)]
    assert choose(readings, allocation(1, 1), kind="whole", gpus=3, gpu_indices=(0, 1, 2)).gpus == (
        "GPU-0",
        "GPU-2",
        "GPU-3",
    )
    assert choose(readings, allocation(1, 1), kind="whole", gpus=4, gpu_indices=(0, 1, 2, 3)).requeue


def test_a_pinned_job_gets_the_gpu_of_its_index_or_waits() -> None:
    readings = [gpu(0), gpu(1)]
    assert choose(readings, allocation(1, 1), pin="slurm", gpu_indices=(1,)).gpus == ("GPU-1",)
    assert choose(readings, allocation(1, 1, 35), pin="slurm", gpu_indices=(1,)).requeue
    assert choose(readings, allocation(1, 1), kind="whole", pin="slurm", gpu_indices=(1,)).requeue


def test_an_index_in_use_keeps_its_space_and_a_fresh_index_chooses() -> None:
    readings = [gpu(0, used=30 * GIB), gpu(1), gpu(2)]
    elsewhere = allocation(1, 2, gpu_index=0)
    assert choose(readings, elsewhere, pin="bound", gpu_indices=(0,)).gpus == ("GPU-2",)
    assert choose(readings, elsewhere, pin="bound", gpu_indices=(1,)).gpus == ("GPU-1",)
    half_full = [gpu(0, used=20 * GIB), gpu(1)]
    assert choose(half_full, allocation(1, 1, gpu_index=1), pin="bound", gpu_indices=(0,)).gpus == (
        "GPU-0",
    ), "an idle GPU, though another has more memory: index 1 keeps its own"


def test_what_the_job_itself_used_before_does_not_count() -> None:
    assert choose([gpu(0)], allocation(99, 0, 40, kind="whole"), kind="whole").gpus == ("GPU-0",)


def test_without_gpus_the_job_is_requeued() -> None:
    assert choose([]).requeue


def test_one_user_to_a_gpu_where_the_site_wants_it() -> None:
    readings = [gpu(0), gpu(1)]
    other = replace(allocation(1, 0), user_id=2000)
    assert choose(readings, other, one_user_per_gpu=True).gpus == ("GPU-1",)
    assert choose(readings, allocation(1, 0), allocation(2, 1, 35), one_user_per_gpu=True).gpus == ("GPU-0",)
    assert choose([gpu(0)], other, one_user_per_gpu=True).requeue
    assert choose([gpu(0)], other).gpus == ("GPU-0",)


def pair(job_id: int, *gpus: int, gpu_indices: tuple[int, ...], gib: int = 10) -> Allocation:
    uuids = tuple(f"GPU-{index}" for index in gpus)
    return replace(allocation(job_id, 0, gib), gpus=uuids, gpu_indices=gpu_indices)


@pytest.mark.parametrize("policy", ["magm", "lug", "mug", "round_robin"])
def test_parts_of_several_gpus_lie_on_distinct_ones(policy: str) -> None:
    physical_gpus = [gpu(index, used=index * GIB, smact=index / 10) for index in range(4)]
    placed = choose(physical_gpus, gpus=2, gpu_indices=(1, 3), policy=policy)
    assert len(set(placed.gpus)) == 2
    assert set(placed.gpus) == {"magm": {"GPU-0", "GPU-1"}, "lug": {"GPU-0", "GPU-1"}}.get(
        policy, set(placed.gpus)
    )


def test_a_job_of_several_gpus_waits_if_one_of_them_lacks_the_memory() -> None:
    physical_gpus = [gpu(0), gpu(1)]
    full = choose(physical_gpus, allocation(1, 1, 35), gpus=2, gpu_indices=(0, 1))
    assert full.requeue and full.reason == "1 of 2 GPUs have the memory, 40.0 GiB at most"


def test_each_index_of_a_job_of_several_gpus_keeps_its_space() -> None:
    """Indices 0 and 1 sit in spaces 1 and 0: a new job on one of them goes where its jobs are."""
    physical_gpus = [gpu(index) for index in range(3)]
    moved = pair(1, 1, 0, gpu_indices=(0, 1))
    assert choose(physical_gpus, moved, gpu_indices=(0,), pin="bound").gpus == ("GPU-1",)
    assert choose(physical_gpus, moved, gpu_indices=(1,), pin="bound").gpus == ("GPU-0",)
    assert choose(physical_gpus, moved, gpus=2, gpu_indices=(1, 2), pin="bound").gpus == ("GPU-0", "GPU-2")
    assert choose(physical_gpus, moved, gpus=2, gpu_indices=(2, 0), pin="bound").gpus == ("GPU-2", "GPU-1")
    assert choose(physical_gpus, gpus=2, gpu_indices=(2, 0), pin="slurm").gpus == ("GPU-2", "GPU-0")


def test_shards_of_one_gpu_that_slurm_split_are_placed_on_one() -> None:
    physical_gpus = [gpu(0), gpu(1)]
    assert choose(physical_gpus, allocation(1, 0, 30), gpu_indices=(0, 1), pin="slurm").gpus == ("GPU-1",)


def test_the_cap_of_a_job_of_several_gpus_holds_on_each() -> None:
    physical_gpus = [gpu(0), gpu(1)]
    demand = Demand(
        job_id=9,
        user_id=1,
        kind="shared",
        gpus=2,
        booked_bytes=10 * GIB,
        cap_bytes=20 * GIB,
        gpu_indices=(0, 1),
    )
    ledger = Ledger(allocations=(allocation(1, 1, 25),))
    placed = choose_gpu(physical_gpus, ledger, demand, PartitionConfig(), pin="slurm", now_s=NOW_S)
    assert placed.cap_bytes == 15 * GIB
