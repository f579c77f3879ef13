"""Which jobs hold memory of a GPU and compute nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.config.load import parse_config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.placement.choose import choose_gpu
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation, Demand
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.idle import idle_jobs
from slurm_plugin.monitor.usage import LEAST_CPU, LEAST_SMACT, add_readings
from slurm_plugin.monitor.window import JobUsage

OWNERS = {11: 1, 21: 2}
HOUR_S = 3600


def gpu(smact: float | None, *pids: int, uuid: str = "GPU-a") -> GpuReading:
    return GpuReading(
        uuid=uuid,
        index=int(uuid == "GPU-b"),
        name="H100",
        memory_total_bytes=80 * GIB,
        memory_used_bytes=GIB * len(pids),
        time_s=0.0,
        smact=smact,
        smact_source="nvml-gpm",
        processes=tuple(GpuProcess(pid=pid, memory_bytes=GIB) for pid in pids),
    )


def idle_after(
    reading: GpuReading, cpu_rates: Mapping[int, float], *, seconds: int = HOUR_S, set_s: float = 0.0
) -> dict[int, float]:
    """Return how long each job has been idle after so many seconds of the same, by its processes' CPU rates.

    Args:
        reading: The GPU.
        cpu_rates: CPU seconds a second, by pid.
        seconds: For how long.
        set_s: By how much the clock is set before the last reading.
    """
    usages: dict[int, JobUsage] = {}
    for second in range(0, seconds + 1, 5):
        cpu_s = {pid: rate * second for pid, rate in cpu_rates.items()}
        now_s = second + (set_s if second == seconds else 0.0)
        usages |= add_readings(usages, [reading], OWNERS, energy_j={}, now_s=now_s, cpu_s=cpu_s)
    return {job: usage.idle_s for job, usage in usages.items()}


def test_alone_the_gpu_shows_it_whatever_the_cpu_does() -> None:
    assert idle_after(gpu(0.0, 11), {11: 1.0}) == {1: HOUR_S}, "a loop that hangs"
    assert idle_after(gpu(0.1, 11), {11: 0.0}) == {1: 0}, "one long kernel"


def test_next_to_others_the_cpu_shows_it() -> None:
    found = idle_after(gpu(0.8, 11, 21), {11: 0.9, 21: LEAST_CPU / 3})
    assert found[2] == HOUR_S and found[1] < 10, "a notebook next to a training"


@pytest.mark.parametrize("set_s", [2.0 * HOUR_S, -2.0 * HOUR_S])
def test_a_clock_that_is_set_makes_no_job_idle_and_none_busy(set_s: float) -> None:
    """`idle_action` ended a training next to others, once the clock was set ahead."""
    found = idle_after(gpu(0.8, 11, 21), {11: 0.9, 21: LEAST_CPU / 3}, set_s=set_s)
    assert found[2] == pytest.approx(HOUR_S, abs=6) and found[1] < 10


def test_without_activity_the_cpu_shows_it() -> None:
    assert idle_after(gpu(None, 11), {11: 0.0}) == {1: HOUR_S}
    assert idle_after(gpu(None, 11), {11: 0.5})[1] < 10


def test_no_job_is_idle_before_he_was_watched_so_long() -> None:
    assert idle_after(gpu(0.0, 11), {11: 0.0}, seconds=600) == {1: 600}


@given(
    smact=st.floats(LEAST_SMACT, 1.0),
    rate=st.floats(5 * LEAST_CPU, 2.0),
    others=st.booleans(),
)
def test_a_job_that_launches_kernels_is_never_idle_for_minutes(
    smact: float, rate: float, others: bool
) -> None:
    pids = (11, 21) if others else (11,)
    assert idle_after(gpu(smact, *pids), {11: rate, 21: 0.0}, seconds=600)[1] < 60


def allocation(job_id: int, partition: str = "gpu") -> Allocation:
    return Allocation(
        job_id=job_id,
        user_id=1000,
        kind="shared",
        gpus=("GPU-a",),
        gpu_indices=(0,),
        booked_bytes=4 * GIB,
        created_s=0.0,
        partition=partition,
        smact=0.9,
    )


def usage(job_id: int, idle_s: float) -> JobUsage:
    return JobUsage(job_id=job_id, first_s=0.0, last_s=10_000.0, computed_s=10_000.0 - idle_s)


def test_each_partition_says_after_how_long_and_the_default_is_half_an_hour() -> None:
    tables = {"gpu": {}, "soon": {"idle_after": "5m"}, "never": {"idle_after": ""}}
    config = parse_config({"partition": tables}, origin="x")
    ledger = Ledger(
        allocations=tuple(
            allocation(k, name) for k, name in enumerate(("gpu", "soon", "never", "other"), start=1)
        )
    )
    for idle_s, named in ((299.0, set()), (301.0, {2}), (1801.0, {1, 2, 4})):
        assert idle_jobs(ledger, {k: usage(k, idle_s) for k in range(1, 5)}, config).keys() == named


@pytest.mark.parametrize("text", ["30", "half an hour", "-5m"])
def test_a_span_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r'partition\.gpu\.idle_after: .* such as "30m"'):
        parse_config({"partition": {"gpu": {"idle_after": text}}}, origin="x")


def test_the_compute_of_an_idle_job_is_others_and_its_memory_is_not() -> None:
    """Placement counts measured activity; what a job is expected to do counts only while it is young."""
    config = parse_config({"partition": {"gpu": {"collocate": True, "shards_per_gpu": 80}}}, origin="x")
    settings = config.partition("gpu")
    assert settings is not None
    ledger = Ledger(allocations=(allocation(1), allocation(2)))
    readings = [gpu(0.0, 11, 21)]
    demand = Demand(
        job_id=3, user_id=1, kind="shared", gpus=1, booked_bytes=4 * GIB, gpu_indices=(0,), smact=0.9
    )
    young, old = (
        choose_gpu(readings, ledger, demand, settings, pin="slurm", now_s=now_s, owners=OWNERS)
        for now_s in (1.0, 4000.0)
    )
    assert "saturated" in young.reason and "saturated" not in old.reason
    too_large = choose_gpu(
        readings,
        ledger,
        Demand(job_id=3, user_id=1, kind="shared", gpus=1, booked_bytes=73 * GIB, gpu_indices=(0,)),
        settings,
        pin="slurm",
        now_s=4000.0,
        owners=OWNERS,
    )
    assert too_large.requeue, "what the idle jobs booked stays booked"
