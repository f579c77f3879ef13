"""Which jobs are stopped for their GPU memory: rules that hold for any GPU, jobs, bookings and limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import MIB
from slurm_plugin.guard.overruns import TOLERANCE_BYTES, overruns
from slurm_plugin.guard.sample import JobUsageOnGpu, Mine, Sample
from slurm_plugin.guard.violation import Violation
from slurm_plugin.monitor.attribution import Traced

GPU = "GPU-a"
STEP_BYTES = 256 * MIB
"""Half the tolerance, so that usage on either side of it and exactly at it is drawn often."""
SETTINGS = {
    response: PartitionConfig(collocate=True, shards_per_gpu=40, on_overrun=response)
    for response in ("warn", "requeue", "end")
}


@dataclass(frozen=True)
class Case:
    """One GPU, the jobs that use it, and what rad-monitor knows of them."""

    reading: GpuReading
    usages: tuple[JobUsageOnGpu, ...]
    sample: Sample

    def found(self) -> dict[int, Violation]:
        rows = list(overruns(self.reading, self.usages, self.sample))
        assert len({one.job_id for one in rows}) == len(rows), "at most one violation for each job"
        return {one.job_id: one for one in rows if one.job_id is not None}

    def is_capped(self, usage: JobUsageOnGpu) -> bool:
        return usage.key in self.sample.mine.capped

    def is_leaving(self, usage: JobUsageOnGpu) -> bool:
        return usage.run in self.sample.leaving


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw up to six jobs of three users on one GPU, which may be overcommitted in every way."""
    count = draw(st.integers(1, 6))
    rows: list[tuple[GpuProcess, Process]] = []
    ledger: list[Allocation] = []
    for job_id in range(1, count + 1):
        booked, more, used = draw(st.integers(1, 40)), draw(st.integers(0, 20)), draw(st.integers(0, 60))
        estimate = draw(st.none() | st.integers(1, 40))
        ledger.append(
            Allocation(
                job_id=job_id,
                user_id=draw(st.integers(1001, 1003)),
                kind=draw(st.sampled_from(("shared", "shared", "shared", "whole"))),
                gpus=(draw(st.sampled_from((GPU, GPU, GPU, GPU, "GPU-b"))),),
                gpu_indices=(0,),
                booked_bytes=booked * STEP_BYTES,
                cap_bytes=draw(st.sampled_from((None, (booked + more) * STEP_BYTES))),
                estimate_bytes=None if estimate is None else estimate * STEP_BYTES,
                created_s=0.0,
                restart=draw(st.integers(0, 1)),
                partition=draw(st.sampled_from(tuple(SETTINGS))),
            )
        )
        memory_bytes = None if used == 0 else used * STEP_BYTES
        rows.append((GpuProcess(pid=job_id, memory_bytes=memory_bytes), Process(pid=job_id, started_ticks=1)))
    free = draw(st.integers(0, 60)) * STEP_BYTES
    used_bytes = sum(row.memory_bytes or 0 for row, _ in rows) + draw(st.integers(0, 8)) * STEP_BYTES
    reading = GpuReading(
        uuid=GPU,
        index=0,
        name="test",
        memory_total_bytes=used_bytes + free,
        memory_used_bytes=used_bytes,
        time_s=0.0,
        processes=tuple(row for row, _ in rows),
    )
    usages = tuple(
        JobUsageOnGpu(
            reading=reading, allocation=allocation, settings=SETTINGS[allocation.partition], rows=(row,)
        )
        for allocation, row in zip(ledger, rows, strict=True)
    )
    runs = [usage.run for usage in usages]
    sample = Sample(
        readings=(reading,),
        ledger=Ledger(allocations=tuple(ledger)),
        traced={
            allocation.job_id: Traced(
                process=process, job_id=allocation.job_id, user_id=allocation.user_id, certain=True
            )
            for allocation, (_, process) in zip(ledger, rows, strict=True)
        },
        mine=Mine(capped=frozenset((GPU, job) for job in draw(st.sets(st.integers(1, count))))),
        ages_s={},
        now_s=100.0,
        leaving=frozenset(draw(st.sets(st.sampled_from(runs)))) | {(1, 7)},
        lacking_bytes=draw(st.sampled_from(({}, {GPU: 8 * STEP_BYTES}, {GPU: 60 * STEP_BYTES}))),
    )
    return Case(reading, usages, sample)


def stops(violation: Violation | None) -> bool:
    return violation is not None and violation.response != "warn"


def is_judged(usage: JobUsageOnGpu) -> bool:
    return usage.allocation.kind == "shared" and GPU in usage.allocation.gpus


def is_above_limit(usage: JobUsageOnGpu) -> bool:
    return usage.total_bytes > usage.allocation.limit_bytes + TOLERANCE_BYTES


@given(cases())
def test_only_usage_above_the_booking_of_a_shared_job_is_found(case: Case) -> None:
    found = case.found()
    for usage in case.usages:
        if usage.allocation.job_id in found:
            assert is_judged(usage) and usage.total_bytes > usage.allocation.booked_bytes


@given(cases())
def test_usage_above_the_limit_is_always_reported_with_that_limit(case: Case) -> None:
    found = case.found()
    for usage in filter(is_judged, case.usages):
        violation = found.get(usage.allocation.job_id)
        above = violation is not None and violation.kind == "memory"
        assert above == is_above_limit(usage)
        if violation is not None:
            limit_bytes = usage.allocation.limit_bytes if above else usage.allocation.booked_bytes
            assert violation.limit_bytes == limit_bytes


@given(cases())
def test_a_job_above_an_enforced_limit_is_always_stopped_as_configured(case: Case) -> None:
    found = case.found()
    for usage in filter(is_judged, case.usages):
        if is_above_limit(usage) and case.is_capped(usage):
            assert found[usage.allocation.job_id].response == usage.settings.on_overrun


@given(cases())
def test_a_partition_that_only_warns_stops_nothing_and_an_overrun_below_the_limit_is_never_ended(
    case: Case,
) -> None:
    found = case.found()
    for usage in case.usages:
        violation = found.get(usage.allocation.job_id)
        if usage.settings.on_overrun == "warn":
            assert not stops(violation)
        elif violation is not None and violation.kind == "overrun":
            assert violation.response == "requeue"


def stopped_for_others(case: Case) -> list[JobUsageOnGpu]:
    """Return the jobs stopped to free memory: neither leaving already nor above a limit that MPS enforces."""
    found = case.found()
    return [
        usage
        for usage in case.usages
        if stops(found.get(usage.allocation.job_id))
        and not case.is_leaving(usage)
        and not (is_above_limit(usage) and case.is_capped(usage))
    ]


def above_estimate_bytes(usage: JobUsageOnGpu) -> int:
    booked = usage.allocation.booked_bytes
    return usage.total_bytes - min(booked, usage.allocation.estimate_bytes or booked)


@given(cases())
def test_at_most_one_job_is_stopped_to_free_memory_and_it_is_furthest_above_its_estimate(case: Case) -> None:
    stopped = stopped_for_others(case)
    assert len(stopped) <= 1
    for usage in stopped:
        alike = [
            other
            for other in filter(is_judged, case.usages)
            if is_above_limit(other) and other.settings.on_overrun != "warn"
            if not case.is_leaving(other) and not case.is_capped(other)
        ]
        assert all(above_estimate_bytes(usage) >= above_estimate_bytes(other) for other in alike)


@given(cases())
def test_with_memory_for_every_booking_no_job_is_stopped_below_its_limit(case: Case) -> None:
    plenty_bytes = sum(allocation.booked_bytes for allocation in case.sample.ledger.allocations)
    reading = replace(case.reading, memory_total_bytes=case.reading.memory_used_bytes + plenty_bytes)
    usages = tuple(replace(usage, reading=reading) for usage in case.usages)
    calm = Case(reading, usages, replace(case.sample, readings=(reading,), lacking_bytes={}))
    assert stopped_for_others(calm) == []


@given(cases())
def test_a_leaving_job_is_reported_as_stopped_for_as_long_as_it_exceeds_its_booking(case: Case) -> None:
    found = case.found()
    for usage in filter(is_judged, case.usages):
        if case.is_leaving(usage) and usage.excess_bytes:
            assert stops(found[usage.allocation.job_id]) == (usage.settings.on_overrun != "warn")


@given(cases(), st.integers(1, 60))
def test_more_free_memory_stops_no_job_that_was_not_stopped(case: Case, more: int) -> None:
    total_bytes = case.reading.memory_total_bytes + more * STEP_BYTES
    reading = replace(case.reading, memory_total_bytes=total_bytes)
    usages = tuple(replace(usage, reading=reading) for usage in case.usages)
    larger = Case(reading, usages, replace(case.sample, readings=(reading,)))
    before, after = stopped_for_others(case), stopped_for_others(larger)
    if not before:
        assert after == []
