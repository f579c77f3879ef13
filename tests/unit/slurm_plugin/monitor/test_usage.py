"""What a job's samples tell of its own activity, where a GPU's is all that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.usage import add_readings
from slurm_plugin.monitor.window import JobUsage

OWNERS = {11: 1, 21: 2}


def reading(smact: float | None, *pids: int, source: str = "nvml-gpm") -> GpuReading:
    return GpuReading(
        uuid="GPU-a",
        index=0,
        name="H100",
        memory_total_bytes=140 * GIB,
        memory_used_bytes=GIB * len(pids),
        time_s=0.0,
        smact=smact,
        smact_source=source,
        processes=tuple(GpuProcess(pid=pid, memory_bytes=GIB) for pid in pids),
    )


def after(*readings: GpuReading, expected: Mapping[int, float] | None = None) -> dict[int, JobUsage]:
    usages: dict[int, JobUsage] = {}
    for second, one in enumerate(readings):
        usages |= add_readings(
            usages, [one], OWNERS, energy_j={}, now_s=float(second), expected=expected or {}
        )
    return usages


def test_alone_a_job_is_informed_whatever_it_takes() -> None:
    usage = after(reading(0.9, 11), reading(0.7, 11))[1]
    assert (usage.own_smact, usage.own_samples) == (pytest.approx(0.8), 2)


def test_a_shared_gpu_with_space_is_split_by_what_is_expected() -> None:
    usages = after(reading(0.45, 11, 21), expected={1: 0.6, 2: 0.3})
    assert usages[1].own_smact == pytest.approx(0.3) == usages[1].mean_smact
    assert usages[2].own_smact == pytest.approx(0.15)
    evenly = after(reading(0.45, 11, 21))
    assert evenly[1].own_smact == pytest.approx(0.225) == evenly[2].own_smact


@pytest.mark.parametrize(
    "one",
    [
        reading(0.6, 11, 21),
        reading(0.3, 11, 99),
        reading(0.3, 11, source="nvml-utilisation"),
        reading(None, 11),
    ],
    ids=["they may slow each other", "a process of no job", "a source that misleads", "no source"],
)
def test_what_shows_nothing_of_one_job_is_not_taken(one: GpuReading) -> None:
    usage = after(reading(0.5, 11), one)[1]
    assert (usage.own_smact, usage.own_samples, usage.samples) == (pytest.approx(0.5), 1, 2)


def test_next_to_a_job_of_several_gpus_a_calm_gpu_shows_nothing() -> None:
    """It takes turns with its neighbours: all of them are slow, and the SMs idle all the same."""
    here, there = reading(0.3, 11, 21), replace(reading(0.3, 12), uuid="GPU-b", index=1)
    owners = {11: 1, 12: 1, 21: 2}
    shared = add_readings({}, [here, there], owners, energy_j={}, now_s=0.0)
    assert (shared[1].own_samples, shared[2].own_samples) == (0, 0)
    alone = add_readings({}, [reading(0.3, 11), there], owners, energy_j={}, now_s=0.0)
    assert (alone[1].own_samples, alone[1].own_smact) == (1, pytest.approx(0.3))


def test_next_to_a_job_without_mps_a_calm_gpu_shows_nothing() -> None:
    both, users = reading(0.3, 11, 21), {1: 1000, 2: 1001}
    reported = {
        turns: add_readings({}, [both], OWNERS, energy_j={}, now_s=0.0, users=users, sliced=turns)
        for turns in ((), (2,), (3,))
    }
    assert [[reported[turns][job].own_samples for job in (1, 2)] for turns in reported] == [
        [1, 1],
        [0, 0],
        [1, 1],
    ]
    alone = add_readings({}, [reading(0.9, 21)], OWNERS, energy_j={}, now_s=0.0, sliced=(2,))
    assert alone[2].own_smact == pytest.approx(0.9), "alone it has no job to wait for"


def test_wrong_expectations_fix_themselves_over_runs() -> None:
    """Jobs meet in pairs; two expect 0.6, and the first really waits for data. History shows more each time."""
    real, known = {1: 0.05, 2: 0.25, 3: 0.1}, {1: 0.6, 2: 0.6, 3: 0.4}
    for _ in range(6):
        for pair in ((1, 2), (1, 3), (2, 3)):
            owners = {job * 10 + 1: job for job in pair}
            both = reading(sum(real[job] for job in pair), *owners)
            usages = add_readings({}, [both], owners, energy_j={}, now_s=0.0, expected=known)
            for job in pair:
                own = usages[job].own_smact
                assert own is not None
                known[job] = (known[job] + own) / 2
    assert all(abs(known[job] - real[job]) < 0.05 for job in real)


def test_a_neighbour_of_the_same_user_costs_no_time() -> None:
    before = {job: JobUsage(job_id=job, first_s=0.0, last_s=0.0) for job in (1, 2)}

    def shared_s(users: dict[int, int]) -> list[float]:
        seen = add_readings(before, [reading(0.5, 11, 21)], OWNERS, energy_j={}, now_s=1.0, users=users)
        return [seen[1].shared_s, seen[2].shared_s]

    assert shared_s({1: 1000, 2: 1000}) == [0.0, 0.0]
    assert shared_s({1: 1000, 2: 1001}) == [1.0, 1.0]
    assert shared_s({1: 1000}) == [1.0, 1.0], "the other's owner is not known"
    assert shared_s({}) == [1.0, 1.0]
