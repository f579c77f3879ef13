"""What is wrong in one sample, and what must never seem so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import GIB, MIB
from slurm_plugin.guard.overruns import TOLERANCE_BYTES
from slurm_plugin.guard.sample import Mine, Sample
from slurm_plugin.guard.violation import Violation
from slurm_plugin.guard.violations import violations
from slurm_plugin.monitor.attribution import Traced

NOW_S = 1_000_000.0
CONFIG = Config(partitions={"gpu": PartitionConfig(collocate=True, shards_per_gpu=40)})
ALICE, BOB = 1001, 1002
RADS = Process(pid=900, started_ticks=1)


def allocation(job_id: int, gib: float = 4, *, gpu: str = "GPU-a", **more: object) -> Allocation:
    values: dict[str, object] = {
        "user_id": ALICE,
        "kind": "shared",
        "gpu_indices": (0,),
        "created_s": NOW_S - 60,
        "partition": "gpu",
    }
    return Allocation(job_id=job_id, gpus=(gpu,), booked_bytes=int(gib * GIB), **{**values, **more})  # type: ignore[arg-type]


def reading(
    *rows: tuple[int, float | None], gpu: str = "GPU-a", mps: bool | None = True, total: int = 40
) -> GpuReading:
    sizes = [(pid, None if gib is None else int(gib * GIB)) for pid, gib in rows]
    return GpuReading(
        uuid=gpu,
        index=0,
        name="H100",
        memory_total_bytes=total * GIB,
        memory_used_bytes=sum(size or 0 for _, size in sizes),
        time_s=NOW_S,
        processes=tuple(GpuProcess(pid=pid, memory_bytes=size, mps=mps) for pid, size in sizes),
    )


def found(
    *readings: GpuReading,
    ledger: tuple[Allocation, ...],
    jobs: dict[int, int],
    mine: Mine | None = None,
    config: Config = CONFIG,
    ages_s: float = 10.0,
    leaving: frozenset[tuple[int, int]] = frozenset(),
    overrun_gpus: dict[str, int] | None = None,
    unsure: tuple[int, ...] = (),
) -> list[Violation]:
    pids = {row.pid for one in readings for row in one.processes}
    users = {one.job_id: one.user_id for one in ledger}
    traced = {
        pid: Traced(
            process=Process(pid=pid, started_ticks=1),
            job_id=jobs.get(pid),
            user_id=users.get(jobs.get(pid, 0), 77),
            certain=pid not in unsure,
        )
        for pid in pids
    }
    capped = frozenset((gpu, one.job_id) for one in ledger for gpu in one.gpus if one.kind == "shared")
    sample = Sample(
        readings=readings,
        ledger=Ledger(allocations=ledger),
        traced=traced,
        mine=mine or Mine(servers={RADS}, clients=capped, capped=capped),
        ages_s={one.process: ages_s for one in traced.values()},
        now_s=NOW_S,
        leaving=leaving,
        lacking_bytes=overrun_gpus or {},
    )
    return list(violations(sample, config))


def reported(rows: list[Violation]) -> list[tuple[str, int | None, str]]:
    return [(one.kind, one.job_id, one.response) for one in rows]


def test_a_job_beyond_its_booking():
    (one,) = found(reading((11, 40)), ledger=(allocation(1),), jobs={11: 1})
    assert (one.kind, one.job_id, one.response) == ("memory", 1, "requeue")
    assert (one.used_bytes, one.limit_bytes) == (40 * GIB, 4 * GIB)
    assert [process.pid for process in one.processes] == [11]
    assert "above its limit of 4.0 GiB" in one.sentence()


def test_a_cap_above_the_booking_is_what_a_job_is_judged_by():
    row = allocation(1, cap_bytes=8 * GIB)
    assert found(reading((11, 8)), ledger=(row,), jobs={11: 1}) == []
    (one,) = found(reading((11, 9)), ledger=(row,), jobs={11: 1})
    assert (one.kind, one.limit_bytes, one.response) == ("memory", 8 * GIB, "requeue")


def test_all_processes_of_a_job_count():
    assert reported(found(reading((11, 3), (12, 3)), ledger=(allocation(1),), jobs={11: 1, 12: 1})) == [
        ("memory", 1, "requeue")
    ]


@pytest.mark.parametrize("response", ["warn", "requeue", "end"])
def test_the_site_says_what_is_done(response: str):
    settings = replace(CONFIG.partitions["gpu"], on_overrun=response)  # type: ignore[arg-type]
    config = replace(CONFIG, partitions={"gpu": settings})
    assert reported(found(reading((11, 9)), ledger=(allocation(1),), jobs={11: 1}, config=config)) == [
        ("memory", 1, response)
    ]


@pytest.mark.parametrize("partition", ["other", ""])
def test_what_no_admin_configured_is_left_alone(partition: str):
    assert found(reading((11, 40)), ledger=(allocation(1, partition=partition),), jobs={11: 1}) == []


def test_what_an_honest_job_cannot_help():
    within = 4 + TOLERANCE_BYTES / GIB
    assert found(reading((11, within)), ledger=(allocation(1),), jobs={11: 1}) == []
    assert found(reading((11, None)), ledger=(allocation(1),), jobs={11: 1}) == []
    assert found(reading((RADS.pid, 9)), ledger=(allocation(1, kind="whole"),), jobs={}) == []
    assert (
        found(reading((11, 40)), ledger=(allocation(1),), jobs={11: 1}, ages_s=3600.0) == []
    )  # of an earlier run
    assert found(replace(reading((11, 40)), healthy=False), ledger=(allocation(1),), jobs={11: 1}) == []


def test_a_gpu_that_is_cut_into_instances_is_not_judged():
    """Each instance has memory and processes of its own; the whole of them belong to no one job."""
    assert found(replace(reading((11, 40)), mig=True), ledger=(allocation(1),), jobs={11: 1}) == []


def test_servers_of_rads_and_processes_that_have_gone_hide_no_job():
    rows = reading((RADS.pid, 1), (10, 1), (11, 30))
    traced = {
        RADS.pid: Traced(process=RADS, job_id=None, user_id=0),
        11: Traced(process=Process(pid=11, started_ticks=1), job_id=1, user_id=ALICE, certain=True),
    }
    mine = Mine(servers={RADS}, capped={("GPU-a", 1)})
    ages_s = dict.fromkeys((one.process for one in traced.values()), 1.0)
    ledger = Ledger(allocations=(allocation(1),))
    sample = Sample(readings=(rows,), ledger=ledger, traced=traced, mine=mine, ages_s=ages_s, now_s=NOW_S)
    (one,) = violations(sample, CONFIG)
    assert (one.kind, one.job_id) == ("memory", 1)


def test_half_a_context_is_too_much_where_another_user_holds_the_gpu():
    ledger = (allocation(1), allocation(2, gpu="GPU-b", user_id=BOB))
    small = TOLERANCE_BYTES / GIB / 2
    assert reported(found(reading((12, small), gpu="GPU-b"), ledger=ledger, jobs={12: 1})) == [
        ("foreign-gpu", 1, "requeue")
    ]


def test_a_stopping_job_is_not_also_the_worst_of_those_that_stay():
    ledger = (
        allocation(1, 10, cap_bytes=20 * GIB, estimate_bytes=4 * GIB),
        allocation(2, 10, cap_bytes=20 * GIB, estimate_bytes=8 * GIB),
        allocation(3, 30, user_id=BOB),
    )
    rows = reading((11, 14), (21, 12), (31, 1))
    leaving = frozenset({(1, 0)})
    assert ("overrun", 2, "requeue") in reported(
        found(rows, ledger=ledger, jobs={11: 1, 21: 2, 31: 3}, leaving=leaving)
    ), "it is short without that job, too"


def test_a_stopping_job_that_is_beyond_everything_is_warned_again():
    """Without a cap, and with no job short any more: the order to end holds until it has gone."""
    (one,) = found(
        reading((11, 9)), ledger=(allocation(1),), jobs={11: 1}, mine=Mine(), leaving=frozenset({(1, 0)})
    )
    assert (one.kind, one.response) == ("memory", "requeue")


def test_within_the_tolerance_no_job_is_the_worst():
    above = 4 + TOLERANCE_BYTES / GIB
    ledger = (allocation(1, cap_bytes=20 * GIB, estimate_bytes=GIB), allocation(2, 37, user_id=BOB))
    assert found(reading((11, above), (21, 1)), ledger=ledger, jobs={11: 1, 21: 2}) == []


def test_a_process_that_has_gone_meanwhile_is_nobodys():
    ledger, readings = Ledger(allocations=(allocation(1),)), (reading((11, 40)),)
    sample = Sample(readings=readings, ledger=ledger, traced={}, mine=Mine(), ages_s={}, now_s=NOW_S)
    assert violations(sample, CONFIG) == ()


def test_a_job_that_the_ledger_does_not_know_is_left_alone():
    assert found(reading((11, 40)), ledger=(allocation(2),), jobs={11: 1}) == []


def test_without_a_cap_a_job_is_stopped_only_where_neighbours_lack_what_they_booked():
    mine = Mine()
    ledger = (allocation(1), allocation(2, 10, user_id=BOB))
    assert reported(found(reading((11, 9), (21, 1)), ledger=ledger, jobs={11: 1, 21: 2}, mine=mine)) == [
        ("memory", 1, "warn")
    ]
    assert reported(found(reading((11, 35), (21, 1)), ledger=ledger, jobs={11: 1, 21: 2}, mine=mine)) == [
        ("memory", 1, "requeue")
    ]


def test_without_caps_the_one_furthest_above_its_booking_goes():
    ledger = (allocation(1), allocation(2), allocation(3, 10, user_id=BOB))
    rows = found(reading((11, 14), (21, 18), (31, 1)), ledger=ledger, jobs={11: 1, 21: 2, 31: 3}, mine=Mine())
    assert reported(rows) == [("memory", 1, "warn"), ("memory", 2, "requeue")]


@pytest.mark.parametrize(
    ("missing_gib", "cap_gib", "expected"),
    [(20, 4, [("memory", 1, "requeue")]), (4, 4, [("memory", 1, "warn")]), (20, 36, [])],
    ids=["it keeps them out", "they find enough", "it holds what was lent to it"],
)
def test_a_job_beyond_its_limit_makes_way_for_jobs_that_slurm_starts(
    missing_gib: int, cap_gib: int, expected: list[tuple[str, int, str]]
):
    """No job on the GPU lacks anything: they never get there."""
    overrun_gpus = {"GPU-a": missing_gib * GIB}
    ledger = (allocation(1, cap_bytes=cap_gib * GIB),)
    assert (
        reported(
            found(reading((11, 35)), ledger=ledger, jobs={11: 1}, mine=Mine(), overrun_gpus=overrun_gpus)
        )
        == expected
    )


def test_a_job_that_is_only_warned_keeps_no_other_job_from_being_stopped():
    """Two partitions on one node, and only one of them stops jobs."""
    warns = PartitionConfig(collocate=True, shards_per_gpu=40, on_overrun="warn")
    config = replace(CONFIG, partitions={**CONFIG.partitions, "calm": warns})
    ledger = (
        allocation(1, cap_bytes=20 * GIB),
        allocation(2, partition="calm"),
        allocation(3, 10, user_id=BOB),
    )
    rows = found(
        reading((11, 14), (21, 18), (31, 1)),
        ledger=ledger,
        jobs={11: 1, 21: 2, 31: 3},
        mine=Mine(),
        config=config,
    )
    assert reported(rows) == [("overrun", 1, "requeue"), ("memory", 2, "warn")]


def test_up_to_its_cap_a_job_may_have_what_no_job_booked():
    ledger = (allocation(1, cap_bytes=20 * GIB, estimate_bytes=3 * GIB), allocation(2, 10, user_id=BOB))
    assert found(reading((11, 20), (21, 1)), ledger=ledger, jobs={11: 1, 21: 2}) == []


def test_a_surprise_gives_way_to_what_others_booked():
    ledger = (allocation(1, cap_bytes=40 * GIB, estimate_bytes=3 * GIB), allocation(2, 10, user_id=BOB))
    (one,) = found(reading((11, 32), (21, 1)), ledger=ledger, jobs={11: 1, 21: 2})
    assert (one.kind, one.job_id, one.response, one.limit_bytes) == ("overrun", 1, "requeue", 4 * GIB)
    assert "another job lacks booked memory" in one.sentence()


@pytest.mark.parametrize(
    ("setting", "response"), [("warn", "warn"), ("requeue", "requeue"), ("end", "requeue")]
)
def test_an_honest_surprise_is_never_ended_for_good(setting: str, response: str):
    config = replace(CONFIG, partitions={"gpu": replace(CONFIG.partitions["gpu"], on_overrun=setting)})  # type: ignore[arg-type]
    ledger = (allocation(1, cap_bytes=40 * GIB), allocation(2, 10, user_id=BOB))
    rows = found(reading((11, 32), (21, 1)), ledger=ledger, jobs={11: 1, 21: 2}, config=config)
    assert reported(rows) == [("overrun", 1, response)]


def test_the_job_furthest_above_its_own_estimate_goes_first():
    """Not the job that uses most, nor the one furthest above its booking: a high estimate was booked."""
    ledger = (
        allocation(1, 10, cap_bytes=20 * GIB, estimate_bytes=9 * GIB),
        allocation(2, 10, cap_bytes=20 * GIB, estimate_bytes=3 * GIB),
        allocation(3, 14, user_id=BOB),
    )
    rows = found(reading((11, 15), (21, 14), (31, 1)), ledger=ledger, jobs={11: 1, 21: 2, 31: 3})
    assert reported(rows) == [("overrun", 2, "requeue")]


def test_many_jobs_that_each_stay_within_the_tolerance_are_a_surprise_together():
    """Twelve jobs of one user hold half a GiB too much each: that is six GiB of what another one booked."""
    overrunners = tuple(allocation(job, 1, cap_bytes=2 * GIB, estimate_bytes=GIB) for job in range(1, 13))
    ledger = (*overrunners, allocation(20, 26, user_id=BOB))
    rows = [(10 + job, 1.5) for job in range(1, 13)]
    jobs = {10 + job: job for job in range(1, 13)} | {99: 20}
    assert found(reading(*rows, (99, 10), total=44), ledger=ledger, jobs=jobs) == [], "Bob can get all of his"
    ((kind, job, response),) = reported(found(reading(*rows, (99, 10), total=43), ledger=ledger, jobs=jobs))
    assert (kind, response) == ("overrun", "requeue") and job in range(1, 13)


def test_while_one_leaves_no_other_job_is_stopped_for_what_he_still_holds():
    """One of its two processes has ended: another job looks worse now, and would go for nothing."""
    ledger = (
        allocation(1, 10, cap_bytes=20 * GIB, estimate_bytes=4 * GIB),
        allocation(2, 10, cap_bytes=20 * GIB, estimate_bytes=8 * GIB),
        allocation(3, 19, user_id=BOB),
    )
    jobs = {11: 1, 12: 1, 21: 2, 31: 3}
    leaving = frozenset({(1, 0)})
    both = reading((11, 6), (12, 8), (21, 12), (31, 1))
    assert reported(found(both, ledger=ledger, jobs=jobs)) == [("overrun", 1, "requeue")]
    half = reading((12, 8), (21, 12), (31, 1))
    assert reported(found(half, ledger=ledger, jobs=jobs)) == [("overrun", 2, "requeue")]
    assert found(half, ledger=ledger, jobs=jobs, leaving=leaving) == []
    gone = reading((21, 15), (31, 1))
    assert reported(found(gone, ledger=ledger, jobs=jobs)) == [("overrun", 2, "requeue")]
    assert found(gone, ledger=ledger, jobs=jobs, leaving=leaving) == [], "what it booked is free, too"
    assert found(gone, ledger=ledger, jobs=jobs, leaving=frozenset({(1, 7)})) != [], "of another run"


def test_a_job_ordered_to_stop_that_does_not_is_warned_again():
    ledger = (allocation(1, 4, cap_bytes=40 * GIB, estimate_bytes=3 * GIB), allocation(2, 10, user_id=BOB))
    rows = found(reading((11, 32), (21, 1)), ledger=ledger, jobs={11: 1, 21: 2}, leaving=frozenset({(1, 0)}))
    assert reported(rows) == [("overrun", 1, "requeue")]


@given(
    sizes=st.lists(
        st.tuples(st.floats(0, 20), st.integers(1, 12), st.integers(0, 12)), min_size=1, max_size=6
    ),
    capped=st.booleans(),
)
def test_a_job_within_its_booking_is_never_stopped_for_estimation_errors_of_others(
    sizes: list[tuple[float, int, int]], capped: bool
):
    ledger = tuple(
        allocation(job, booked, cap_bytes=(booked + more) * GIB, estimate_bytes=booked * GIB // 2)
        for job, (_, booked, more) in enumerate(sizes, start=1)
    )
    rows = found(
        reading(*((10 + job, size) for job, (size, _, _) in enumerate(sizes, start=1))),
        ledger=ledger,
        jobs={10 + job: job for job in range(1, len(sizes) + 1)},
        mine=None if capped else Mine(),
    )
    within = {job for job, (size, booked, _) in enumerate(sizes, start=1) if size <= booked}
    assert not within & {one.job_id for one in rows}
    assert len([one for one in rows if one.kind == "overrun"]) <= 1


def test_a_gpu_that_another_job_holds():
    ledger = (allocation(1), allocation(2, gpu="GPU-b", user_id=BOB))
    rows = found(reading((11, 1)), reading((12, 1), gpu="GPU-b"), ledger=ledger, jobs={11: 1, 12: 1})
    assert reported(rows) == [("foreign-gpu", 1, "requeue")]
    assert (
        found(reading((12, 0.5), gpu="GPU-c"), ledger=ledger, jobs={12: 1}) == []
    )  # no job's: a context hurts none
    rows = found(reading((12, 20), gpu="GPU-c"), ledger=ledger, jobs={12: 1})
    assert reported(rows) == [("foreign-gpu", 1, "requeue")]  # the next job would miss it


def test_a_whole_job_has_its_gpu_to_itself_but_no_other():
    ledger = (allocation(1, 40, kind="whole"), allocation(2, gpu="GPU-b", user_id=BOB))
    assert found(reading((11, 39)), ledger=ledger, jobs={11: 1}) == []
    assert reported(found(reading((11, 9), gpu="GPU-b"), ledger=ledger, jobs={11: 1})) == [
        ("foreign-gpu", 1, "requeue")
    ]


def test_past_its_mps_server():
    ledger = (allocation(1),)
    assert reported(found(reading((11, 1), mps=False), ledger=ledger, jobs={11: 1})) == [
        ("outside-mps", 1, "warn")
    ]
    for mps in (True, None):
        assert found(reading((11, 1), mps=mps), ledger=ledger, jobs={11: 1}) == []
    assert found(reading((11, 1), mps=False), ledger=ledger, jobs={11: 1}, mine=Mine()) == []  # it has none


def test_an_unmanaged_process_on_a_whole_gpu_is_named_and_never_stopped():
    whole = allocation(1, 40, kind="whole")
    (one,) = found(reading((11, 9), (66, 20)), ledger=(whole,), jobs={11: 1})
    assert (one.kind, one.job_id, one.response, one.processes[0].pid) == ("unmanaged", None, "warn", 66)
    assert found(reading((11, 9), (66, 0.01)), ledger=(whole,), jobs={11: 1}) == []
    assert found(reading((11, 2), (66, 20)), ledger=(allocation(1),), jobs={11: 1}) == []


@given(
    sizes=st.lists(st.integers(0, 4096), min_size=1, max_size=6),
    booked=st.integers(1, 4096),
    age_s=st.floats(0, 100),
)
def test_a_job_within_its_booking_is_never_found(sizes: list[int], booked: int, age_s: float):
    """However its processes share it, and whatever the neighbour does."""
    fair = [size * MIB * booked // max(1, sum(sizes)) for size in sizes]
    ledger = (allocation(1, booked / 1024), allocation(2, 1, user_id=BOB))
    rows = reading(*((11 + i, size / GIB) for i, size in enumerate(fair)), (90, 30))
    jobs = {11 + i: 1 for i in range(len(fair))} | {90: 2}
    assert 1 not in [one.job_id for one in found(rows, ledger=ledger, jobs=jobs, ages_s=age_s)]


def test_an_honest_estimation_error_stays_where_the_overrunning_job_goes():
    """Both were stopped: the overrunning job for what it took, and its neighbour for what that left."""
    overrunner, honest = (
        allocation(1),
        allocation(2, 10, cap_bytes=16 * GIB, estimate_bytes=10 * GIB, user_id=BOB),
    )
    ledger = (overrunner, honest, allocation(3, 10, user_id=BOB))
    rows, jobs = reading((11, 20), (12, 13), (13, 2)), {11: 1, 12: 2, 13: 3}
    assert reported(found(rows, ledger=ledger, jobs=jobs)) == [("memory", 1, "requeue")]
    wide = (overrunner, honest, allocation(3, 28, user_id=BOB))
    assert ("overrun", 2, "requeue") in reported(found(rows, ledger=wide, jobs=jobs)), (
        "it is short without that job, too"
    )
    warns = Config(partitions={"gpu": replace(CONFIG.partitions["gpu"], on_overrun="warn")})
    assert reported(found(rows, ledger=ledger, jobs=jobs, config=warns)) == [
        ("memory", 1, "warn"),
        ("overrun", 2, "warn"),
    ]


def test_what_a_job_that_is_leaving_holds_is_as_good_as_free():
    honest = allocation(2, 10, cap_bytes=16 * GIB, estimate_bytes=10 * GIB, user_id=BOB)
    ledger = (allocation(1, 20, cap_bytes=30 * GIB), honest, allocation(3, 10, user_id=BOB))
    rows, jobs = reading((11, 20), (12, 13), (13, 2)), {11: 1, 12: 2, 13: 3}
    assert reported(found(rows, ledger=ledger, jobs=jobs)) == [("overrun", 2, "requeue")]
    assert found(rows, ledger=ledger, jobs=jobs, leaving=frozenset({(1, 0)})) == []


def test_a_booking_below_the_estimate_is_what_a_job_is_measured_by():
    """A job that booked less than its expected need is further above than it looks."""
    ledger = (
        allocation(1, 4, cap_bytes=30 * GIB, estimate_bytes=20 * GIB),
        allocation(2, 6, cap_bytes=30 * GIB, estimate_bytes=6 * GIB, user_id=BOB),
        allocation(3, 30, user_id=BOB),
    )
    rows = found(reading((11, 8), (12, 9), (13, 1)), ledger=ledger, jobs={11: 1, 12: 2, 13: 3})
    assert reported(rows) == [("overrun", 1, "requeue")]


def test_jobs_that_are_not_rads_and_whole_gpus_are_not_measured():
    assert found(reading((11, 40)), ledger=(allocation(1, managed=False),), jobs={11: 1}) == []
    assert found(reading((11, 40)), ledger=(allocation(1, 38, kind="whole"),), jobs={11: 1}) == []


def test_what_is_not_certain_is_no_reason_to_stop_a_job():
    """A process that only says whose it is counts against no job, on its GPU or on another's."""
    ledger = (allocation(1), allocation(2))
    rows = reading((10, 1), (11, 30))
    assert [one.job_id for one in found(rows, ledger=ledger, jobs={10: 1, 11: 1})] == [1]
    assert found(rows, ledger=ledger, jobs={10: 1, 11: 1}, unsure=(11,)) == []
    elsewhere = (allocation(1), allocation(2, gpu="GPU-b"))
    assert found(rows, ledger=elsewhere, jobs={10: 1, 11: 2}, unsure=(11,)) == []


@pytest.mark.parametrize("action", ["none", "warn", "requeue", "end"])
def test_an_idle_job_is_warned_before_it_is_stopped(action: str):
    partition = replace(CONFIG.partitions["gpu"], idle_after="30m", idle_action=action)  # type: ignore[arg-type]
    config = replace(CONFIG, partitions={"gpu": partition})

    def responses(idle: dict[int, float]) -> list[tuple[str, str]]:
        sample = Sample(
            readings=[reading((11, 4))],
            ledger=Ledger(allocations=(allocation(1),)),
            traced={
                11: Traced(process=Process(pid=11, started_ticks=1), user_id=ALICE, job_id=1, certain=True)
            },
            mine=Mine(clients=[("GPU-a", 1)], capped=[("GPU-a", 1)]),
            ages_s={},
            now_s=NOW_S,
            idle=idle,
        )
        return [(one.kind, one.response) for one in violations(sample, config)]

    assert responses({}) == []
    assert responses({1: 1801.0}) == ([] if action == "none" else [("idle", "warn")])
    assert responses({1: 1861.0}) == ([] if action == "none" else [("idle", action)])
