"""What the simulation must never do, on random traces, and small cases that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.placement.choose import Pin
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB
from slurm_plugin.simulate.aftermath import REQUEUE_S
from slurm_plugin.simulate.cluster import PARTITION, SimulatedCluster
from slurm_plugin.simulate.engine import Engine
from slurm_plugin.simulate.gpus.hardware import Hardware, overrunning
from slurm_plugin.simulate.gpus.interference import Load, slowdowns, together
from slurm_plugin.simulate.jobs import Baseline, make_job
from slurm_plugin.simulate.metrics import metrics
from slurm_plugin.simulate.progress import SimulatedJob, SimulatedRun
from slurm_plugin.simulate.result import Result
from slurm_plugin.simulate.traces.job import TraceJob
from slurm_plugin.simulate.traces.workloads import EXACT, MeasuredError
from slurm_plugin.slurm.versions import NEWEST, Version

MEMORY = 40 * GIB
CALM = Load(smact=0.02, busy=0.04, duty=0.2)
SETTINGS = PartitionConfig(collocate=True, gpu_memory_mib=40 * 1024)


def reported(estimate: float, bound: float) -> MeasuredError:
    return MeasuredError(estimate=estimate, bound=bound, quantiles=(estimate,) * len(SHARES))


def run(
    *rows: TraceJob,
    nodes: int = 1,
    per_node: int = 2,
    baseline: Baseline = "rad",
    errors: Sequence[MeasuredError] = (EXACT,),
    load: Load = CALM,
    pin: Pin = "slurm",
    partition: PartitionConfig = SETTINGS,
    start_up_s: float = 0.0,
    slot_s: float | None = None,
    min_age_reserve_s: float = 0.0,
    began_s: float = 0.0,
    slurm: Version = NEWEST,
    requeue_s: float = 3.0,
) -> Result:
    config = Config(partitions={PARTITION: partition}, default_partition=PARTITION)
    jobs: list[SimulatedJob] = [
        make_job(
            row,
            load,
            config,
            baseline=baseline,
            errors=errors,
            usable_bytes=MEMORY,
            start_up_s=start_up_s,
            slot_s=slot_s,
        )
        for row in rows
    ]
    managed = baseline == "rad"
    cluster = SimulatedCluster(
        nodes=nodes,
        per_node=per_node,
        memory_bytes=MEMORY,
        config=config,
        pin=pin,
        managed=managed,
        min_age_reserve_s=min_age_reserve_s,
        began_s=began_s,
        slurm=slurm,
        requeue_s=requeue_s,
    )
    return Engine(cluster, jobs).run()


def job(
    number: int, submit_s: float = 0.0, gpus: int = 1, duration_s: float = 100.0, gib: int = 4
) -> TraceJob:
    return TraceJob(
        number=number,
        submit_s=submit_s,
        workload=f"w{number}",
        gpus=gpus,
        duration_s=duration_s,
        memory_bytes=gib * GIB,
        limit_s=2 * duration_s,
    )


def test_whole_gpus_run_two_at_a_time() -> None:
    result = run(*(job(n) for n in range(4)), baseline="whole")
    assert metrics(result)["makespan_s"] == 200.0
    assert metrics(result)["mean_waiting_s"] == 50.0
    assert metrics(result)["max_slowdown"] == 1.0


def test_a_long_job_runs_in_slots_and_lets_others_in_between() -> None:
    """Slots of 600 s have 480 s of work; one GPU, a job of 1,000 s, and one of 100 s that comes while it runs."""
    result = run(job(0, duration_s=1000.0), job(1, submit_s=10.0), baseline="whole", per_node=1, slot_s=600.0)
    long, short = result.jobs
    assert (short.first_start_s, short.end_s) == (480.0, 580.0)
    assert long.restart == 2
    # 480 s, a delay of 121 s, 480 s, the delay again, and the 40 s that are left.
    assert long.end_s == 480.0 + REQUEUE_S + 480.0 + REQUEUE_S + 40.0
    figures = metrics(result)
    assert (figures["mean_execution_s"], figures["max_slowdown"], figures["over_limit"]) == (550.0, 1.0, 0)
    straight = run(job(0, duration_s=1000.0), job(1, submit_s=10.0), baseline="whole", per_node=1)
    assert straight.jobs[1].first_start_s == 1000.0


def test_shared_jobs_in_slots_lose_no_work_and_leave_no_memory_behind() -> None:
    result = run(*(job(n, duration_s=2000.0 + n) for n in range(12)), slot_s=600.0)
    assert all(one.end_s is not None and one.restart == 4 for one in result.jobs)
    assert metrics(result)["max_slowdown"] < 1.05
    assert not any(gpu.runs or gpu.used_bytes for gpu in result.gpus)


def test_small_jobs_share_and_none_waits() -> None:
    result = run(*(job(n) for n in range(8)))
    assert metrics(result)["makespan_s"] == 100.0
    assert metrics(result)["mean_waiting_s"] == 0.0


def test_start_up_takes_its_time_and_nothing_of_the_gpu() -> None:
    full = Load(smact=0.95, busy=1.0)
    alone = run(job(0), load=full, start_up_s=30.0)
    assert (metrics(alone)["makespan_s"], metrics(alone)["max_slowdown"]) == (130.0, 1.0)
    assert alone.gpus[0].busy_s == pytest.approx(95.0)
    # The second one imports while the first one trains: only then do they slow each other down.
    both = run(job(0), job(1, submit_s=50.0), load=full, start_up_s=30.0, per_node=1)
    first, second = both.jobs
    factor = slowdowns([full, full])[0]
    assert first.end_s == pytest.approx(80.0 + 50.0 * factor)
    assert second.end_s is not None and second.end_s > first.end_s


def test_a_job_of_two_gpus_starts_up_on_both() -> None:
    result = run(job(0, gpus=2), load=Load(smact=0.5, busy=1.0), start_up_s=20.0)
    assert metrics(result)["makespan_s"] == 120.0
    assert [gpu.busy_s for gpu in result.gpus] == pytest.approx([50.0, 50.0])


def on_gpu(number: int, *, needs: int, booked: int, estimate: int) -> SimulatedRun:
    """A run of a job of so many GiB."""
    config = Config(partitions={PARTITION: SETTINGS}, default_partition=PARTITION)
    one = make_job(job(number, gib=needs), CALM, config, baseline="rad", errors=(EXACT,), usable_bytes=MEMORY)
    one.booking = Booking(kind="shared", memory_bytes=booked * GIB, estimate_bytes=estimate * GIB)
    return SimulatedRun(job=one, gpu_indices=(0,), gpus=(0,), start_s=0.0, trains_s=0.0)


def test_jobs_of_two_gpus_share_where_the_site_lets_them() -> None:
    rows = [job(number, gpus=2) for number in range(3)]
    alone, shared = (
        run(*rows, partition=replace(SETTINGS, share_multi_gpu=share)) for share in (False, True)
    )
    assert (metrics(alone)["makespan_s"], metrics(shared)["makespan_s"]) == (300.0, 100.0)
    assert [one.first_start_s for one in shared.jobs] == [0.0, 0.0, 0.0]


def test_a_job_that_is_slow_on_its_first_gpu_leaves_its_second_one_to_others() -> None:
    wide = Load(smact=0.5, busy=0.6, halves=True, exchanges_per_s=1500.0)
    full = Load(smact=0.8, busy=0.98)
    config = Config(partitions={PARTITION: SETTINGS}, default_partition=PARTITION)
    hardware = Hardware(SimulatedCluster(nodes=1, per_node=2, memory_bytes=MEMORY, config=config))
    runs = [on_gpu(number, needs=4, booked=5, estimate=4) for number in range(3)]
    for one, load, gpus in zip(runs, (wide, full, full), ((0, 1), (1,), (0,)), strict=True):
        one.job.load, one.gpus = load, gpus
        hardware.occupy(one, 0.0)
        if gpus == (1,):
            alone_with_it = one.factors[1]
    both, second, _ = runs
    assert both.factors[0] == slowdowns([wide, full])[0] > both.factors[1] > 1.0
    assert both.rate == 1.0 / both.factors[0]
    assert 1.0 < second.factors[1] < alone_with_it, "it is informed of what came to the first GPU"
    assert hardware.gpus[1].smact == pytest.approx(
        wide.smact / both.factors[0] + full.smact / second.factors[1]
    )
    hardware.vacate(runs[2], 10.0)
    assert second.factors[1] == alone_with_it


def test_the_guard_stops_the_furthest_above_its_estimate_where_others_need_what_they_booked() -> None:
    quiet = on_gpu(0, needs=6, booked=18, estimate=10)
    some, more = (
        on_gpu(1, needs=12, booked=10, estimate=9),
        on_gpu(2, needs=11, booked=9, estimate=7),
    )
    assert overrunning([quiet, some], MEMORY) is None, "what the first booked and does not hold is still free"
    assert overrunning([quiet, some, more], MEMORY) is more
    assert (
        overrunning(
            [on_gpu(3, needs=20, booked=20, estimate=5), on_gpu(4, needs=20, booked=21, estimate=5)], MEMORY
        )
        is None
    )
    more.runs_out(60.0, stopped=True)
    assert overrunning([quiet, some, more], MEMORY) is None, "one is enough"


def test_a_job_above_its_cap_crashes_and_returns_with_a_gpu_of_its_own() -> None:
    result = run(job(0, gib=8), job(1), errors=(reported(0.4, 0.5),))
    figures = metrics(result)
    assert (figures["crashes"], figures["recoveries"], figures["failed"]) == (2, 2, 0)
    assert all(one.whole for one in result.jobs)
    assert figures["makespan_s"] > 100.0


def test_no_job_is_run_again_where_recovery_is_off() -> None:
    result = run(job(0, gib=8), errors=(reported(0.4, 0.5),), partition=replace(SETTINGS, recovery="off"))
    assert (metrics(result)["crashes"], metrics(result)["failed"]) == (1, 1)


def test_backfill_does_not_delay_what_has_a_promised_start() -> None:
    """A two-GPU job waits behind a long one; short jobs pass it, a long one does not."""
    rows = (
        job(0, duration_s=1000.0),
        job(1, submit_s=1.0, gpus=2, duration_s=100.0),
        job(2, submit_s=2.0, duration_s=500.0),
        job(3, submit_s=3.0, duration_s=5000.0),
    )
    result = run(*rows, baseline="whole")
    starts = {one.number: one.first_start_s for one in result.jobs}
    assert starts[1] == 1000.0, "the first job's end, though backfill had a GPU to give away"
    assert starts[2] is not None and starts[2] < 100.0
    assert starts[3] is not None and starts[3] >= 1100.0


@pytest.mark.parametrize(
    ("min_age_reserve_s", "starts_s"),
    [
        (0.0, [0.0, 0.0, 100.0, 100.0]),  # a GPU that no job waits for has space, but its node is planned
        (60.0, [0.0, 0.0, 103.0, 3.0]),  # a job that waited for less than that may be passed, and pays for it
        (1.0, [0.0, 0.0, 100.0, 100.0]),
    ],
)
def test_backfill_plans_by_nodes(min_age_reserve_s: float, starts_s: list[float]) -> None:
    result = run(
        replace(job(0, duration_s=100.0, gib=10), limit_s=120.0),
        replace(job(1, duration_s=1000.0, gib=11), limit_s=1200.0),
        replace(job(2, 1.0, duration_s=100.0, gib=40), limit_s=6000.0),
        replace(job(3, 3.0, duration_s=100.0, gib=4), limit_s=6000.0),
        min_age_reserve_s=min_age_reserve_s,
    )
    assert [one.first_start_s for one in result.jobs] == starts_s


@pytest.mark.parametrize(("began_s", "start_s"), [(0.0, 60.0), (20.0, 100.0)])
def test_a_planned_start_counts_from_the_minute_before_it(began_s: float, start_s: float) -> None:
    """Seen on Slurm 24.11: whether a job passes one that is planned after its end depends on the clock."""
    result = run(
        replace(job(0, duration_s=100.0, gib=20), limit_s=120.0),
        replace(
            job(1, 1.0, duration_s=10.0, gib=30), limit_s=60.0
        ),  # planned at 120 s, or at 100 s by the minute
        replace(job(2, 50.0, duration_s=10.0, gib=4), limit_s=60.0),
        per_node=1,
        began_s=began_s,
    )
    assert result.jobs[2].first_start_s == start_s


@pytest.mark.parametrize(
    ("gib", "slurm", "start_s"),
    [(40, (24, 11, 5), 110.0), (40, (22, 5, 8), 30.0), (40, (26, 5, 5), 30.0), (30, (24, 11, 5), 30.0)],
)
def test_slurm_24_11_plans_whole_gpus_as_if_no_shards_were_in_use(
    gib: int, slurm: Version, start_s: float
) -> None:
    """See tests/cluster/slurm/test_plans.py: a start that is planned for now lets no job pass that would share."""
    result = run(
        replace(job(0, duration_s=100.0, gib=20), limit_s=600.0),
        replace(job(1, 1.0, duration_s=10.0, gib=gib), limit_s=60.0),
        replace(job(2, 10.0, duration_s=10.0, gib=4), limit_s=60.0),
        per_node=1,
        slurm=slurm,
    )
    assert result.jobs[2].first_start_s == start_s


@pytest.mark.parametrize("policy", ["exclusive", "round_robin", "magm", "lug", "mug"])
def test_every_policy_ends_every_job(policy: str) -> None:
    partition = replace(SETTINGS, policy=policy)  # type: ignore[arg-type]
    result = run(*(job(n, submit_s=n) for n in range(12)), partition=partition, pin="bound")
    assert metrics(result)["jobs"] == 12


ROWS = st.lists(
    st.builds(
        lambda submit_s, gpus, duration_s, gib: (submit_s, gpus, duration_s, gib),
        st.integers(0, 500),
        st.sampled_from((1, 1, 1, 1, 2)),
        st.integers(1, 400),
        st.integers(1, 39),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(
    ROWS,
    st.sampled_from(("rad", "whole", "hand")),
    st.sampled_from(("slurm", "bound")),
    st.floats(0.5, 1.02),
)
def test_every_job_ends_and_no_gpu_is_overfull(
    rows: list[tuple[int, int, int, int]], baseline: Baseline, pin: Pin, error: float
) -> None:
    trace = [
        job(n, submit_s=float(s), gpus=g, duration_s=float(d), gib=m)
        for n, (s, g, d, m) in enumerate(sorted(rows))
    ]
    result = run(*trace, nodes=2, baseline=baseline, pin=pin, errors=(reported(error, error * 1.2),))
    for one in result.jobs:
        assert one.end_s is not None and one.first_start_s is not None
        assert one.first_start_s >= one.trace.submit_s
        assert one.last_run_s >= one.trace.duration_s * 0.999 or one.crashes
    assert all(not gpu.runs and gpu.used_bytes == 0 for gpu in result.gpus)
    assert metrics(result)["failed"] == 0


def test_alone_no_job_is_slowed_and_company_never_helps() -> None:
    busy = Load(smact=0.9, busy=0.99)
    assert slowdowns([busy]) == [1.0]
    two, three = slowdowns([busy, busy]), slowdowns([busy, busy, CALM])
    assert two[0] > 1.0
    assert three[0] >= two[0]
    assert together([busy] * 5, slowdowns([busy] * 5)) <= 1.0


def test_gpus_do_the_work_that_the_jobs_have() -> None:
    """Whatever shares: activity over time comes to that of all jobs alone, and no trace ends sooner than that."""
    busy = Load(smact=0.7, busy=0.9, duty=0.8)
    result = run(*(job(n, submit_s=float(n), duration_s=100.0 + 7 * n) for n in range(20)), load=busy)
    work_s = sum(one.trace.duration_s for one in result.jobs) * busy.mean_smact
    assert sum(gpu.busy_s for gpu in result.gpus) == pytest.approx(work_s, rel=0.01)
    assert result.end_s >= work_s / len(result.gpus)


def test_a_job_on_two_shared_gpus_is_as_slow_as_on_the_slower_one() -> None:
    """One comes onto its second GPU when it has done half of its work."""
    config = Config(partitions={PARTITION: SETTINGS}, default_partition=PARTITION)
    cluster = SimulatedCluster(nodes=1, per_node=2, memory_bytes=MEMORY, config=config, managed=False)
    busy = Load(smact=0.9, busy=1.0)
    rows = ((job(0, gpus=2), busy), (job(1, duration_s=5000.0), CALM), (job(2, submit_s=50.0), busy))
    jobs = [
        make_job(row, load, config, baseline="hand", errors=(EXACT,), usable_bytes=MEMORY)
        for row, load in rows
    ]
    wide, _, late = jobs
    wide.booking, wide.shards = late.booking, late.shards
    result = Engine(cluster, jobs).run()
    factor = slowdowns([busy, busy])[0]
    assert late.first_start_s == 50.0
    assert wide.end_s == pytest.approx(50.0 + 50.0 * factor, rel=0.01)
    assert metrics(result)["jobs"] == 3


def test_a_job_that_was_requeued_is_woken_by_the_next_end() -> None:
    """Slurm 22.05 gives GPUs with shards in use away: the job is requeued for 18 s, then 20, 40, ... unless woken."""
    wide = job(2, 1.0, gpus=2, duration_s=50.0)
    small = job(0, duration_s=2.0), job(1, duration_s=100.0)
    result = run(*small, wide, pin="bound", slurm=(22, 5, 8), requeue_s=18.0)
    # Requeued at 2 (until 20), 20 (until 40), 40 (until 80), 80 (until 160): the end at 100 wakes it.
    assert result.requeues == 4
    assert result.jobs[2].first_start_s == pytest.approx(100.0)


def test_a_job_woken_too_early_starts_as_soon_as_slurm_can() -> None:
    wide = job(2, 1.0, gpus=2, duration_s=50.0)
    small = job(0, duration_s=2.0), job(1, duration_s=10.0)
    result = run(*small, wide, pin="bound", slurm=(22, 5, 8), requeue_s=18.0)
    assert (result.requeues, result.jobs[2].first_start_s) == (1, pytest.approx(20.0))
