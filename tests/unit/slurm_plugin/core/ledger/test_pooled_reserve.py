from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.pooled_reserve import Share, pooled_bytes, share, widest
from slurm_plugin.core.placement.choose import Pin, choose_gpu
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation, Demand
from slurm_plugin.core.records.submission import PolicyName
from slurm_plugin.core.units import GIB, MIB

SHARES = st.builds(
    lambda expected, more, model: Share(expected_bytes=expected, most_bytes=expected + more, model=model),
    st.integers(0, 40 * GIB),
    st.integers(0, 40 * GIB),
    st.sampled_from([None, "a", "b"]),
)


@given(others=st.lists(SHARES, max_size=12), one=SHARES)
def test_a_pool_lies_between_what_is_expected_and_all_caps(others: list[Share], one: Share) -> None:
    everybody = [*others, one]
    together = pooled_bytes(everybody)
    assert sum(each.expected_bytes for each in everybody) + one.overshoot_bytes <= together
    assert together <= sum(each.most_bytes for each in everybody)
    assert pooled_bytes(others) <= together


@given(one=SHARES, copies=st.integers(1, 9))
def test_copies_of_one_model_surprise_together(one: Share, copies: int) -> None:
    alike = [replace(one, model="a")] * copies
    assert pooled_bytes(alike) == copies * one.most_bytes


@given(others=st.lists(SHARES, max_size=8), one=SHARES, space=st.integers(0, 200 * GIB))
def test_the_widest_cap_fits_and_no_wider_one_does(others: list[Share], one: Share, space: int) -> None:
    most = widest(others, one, space)
    least = replace(one, most_bytes=one.expected_bytes)
    if most is None:
        assert pooled_bytes([*others, least]) > space
        return
    assert one.expected_bytes <= most <= one.most_bytes
    assert pooled_bytes([*others, replace(one, most_bytes=most)]) <= space
    if most < one.most_bytes:
        assert pooled_bytes([*others, replace(one, most_bytes=most + 1)]) > space


@pytest.mark.parametrize(
    ("models", "together", "widest_of_a_third"),
    [
        (("a", "a"), 16, 14),  # 5 + 5 + 3 + 3; of 30 the third gets all but 16
        (("a", "b"), 15, 16),  # 5 + 5 + the root of 9 + 9
        ((None, None), 15, 19),
    ],
)
def test_common_errors_and_errors_of_single_jobs(
    models: tuple[str | None, str | None], together: int, widest_of_a_third: int
) -> None:
    pair = [Share(expected_bytes=5, most_bytes=8, model=model) for model in models]
    assert pooled_bytes(pair) == together
    third = Share(expected_bytes=5, most_bytes=99, model=models[0])
    assert widest(pair, third, 30) == widest_of_a_third
    assert pooled_bytes([*pair, replace(third, most_bytes=widest_of_a_third)]) <= 30
    assert pooled_bytes([*pair, replace(third, most_bytes=widest_of_a_third + 1)]) > 30


def test_what_a_job_holds_already_is_no_longer_uncertain() -> None:
    young = share(10 * GIB, cap_bytes=16 * GIB, estimate_bytes=9 * GIB, model="a")
    assert (young.expected_bytes, young.most_bytes) == (9 * GIB, 16 * GIB)
    grown = share(10 * GIB, cap_bytes=16 * GIB, estimate_bytes=9 * GIB, model="a", touched_bytes=12 * GIB)
    assert (grown.expected_bytes, grown.most_bytes) == (12 * GIB, 16 * GIB)


def test_a_job_that_requested_less_than_its_estimate_is_expected_to_keep_to_that() -> None:
    by_hand = share(4 * GIB, cap_bytes=None, estimate_bytes=9 * GIB, model="a")
    assert (by_hand.expected_bytes, by_hand.most_bytes) == (4 * GIB, 4 * GIB)


def test_a_root_is_rounded_up() -> None:
    assert pooled_bytes(Share(expected_bytes=0, most_bytes=1, model=model) for model in "ab") == 2


PHYSICAL_GPU = 40 * GIB


def demand(job_id: int, booked: int, cap: int | None, estimate: int | None, model: str | None) -> Demand:
    return Demand(
        job_id=job_id,
        user_id=1000,
        kind="shared",
        gpus=1,
        booked_bytes=booked,
        gpu_indices=(0,),
        cap_bytes=cap,
        estimate_bytes=estimate,
        profile_key=model,
    )


def allocation(wanted: Demand, cap: int | None) -> Allocation:
    return Allocation(
        job_id=wanted.job_id,
        user_id=1000,
        kind="shared",
        gpus=("GPU-0",),
        gpu_indices=(0,),
        booked_bytes=wanted.booked_bytes or 0,
        created_s=0.0,
        cap_bytes=cap,
        estimate_bytes=wanted.estimate_bytes,
        profile_key=wanted.profile_key,
    )


JOBS = st.lists(
    st.tuples(
        st.integers(1, 20 * GIB),
        st.none() | st.integers(1, 60 * GIB),
        st.none() | st.integers(0, 30 * GIB),
        st.sampled_from([None, "a", "b", "c"]),
        st.floats(0, 1),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(jobs=JOBS, unmanaged=st.integers(0, 5 * GIB))
def test_all_bookings_and_the_pool_always_fit_the_gpu(
    jobs: list[tuple[int, int | None, int | None, str | None, float]], unmanaged: int
) -> None:
    """The ledger accepts whatever placement chose, also next to jobs that have used all that they may."""
    ledger, used_bytes = Ledger(), {}
    for number, (booked, cap, estimate, model, use) in enumerate(jobs, start=1):
        wanted = demand(number, booked, cap, estimate, model)
        reading = GpuReading(
            uuid="GPU-0",
            index=0,
            name="H100",
            memory_total_bytes=PHYSICAL_GPU,
            memory_used_bytes=sum(used_bytes.values()) + unmanaged,
            time_s=0.0,
            processes=tuple(GpuProcess(pid=pid, memory_bytes=size) for pid, size in used_bytes.items()),
        )
        owners = {pid: pid for pid in used_bytes}
        placement = choose_gpu(
            [reading], ledger, wanted, PartitionConfig(), pin="bound", now_s=100.0, owners=owners
        )
        if not placement.gpus:
            continue
        existing = allocation(wanted, placement.cap_bytes)
        assert booked <= existing.limit_bytes <= max(booked, cap or 0)
        ledger = ledger.reserve(existing, {"GPU-0": PHYSICAL_GPU - unmanaged})
        free = PHYSICAL_GPU - unmanaged - sum(used_bytes.values())
        used_bytes[number] = min(int(existing.limit_bytes * use), free)
    assert sum(existing.booked_bytes for existing in ledger.allocations) <= PHYSICAL_GPU - unmanaged


def choose(incoming: Demand, *others: Demand) -> tuple[bool, int | None]:
    ledger = Ledger()
    for other in others:
        ledger = ledger.reserve(allocation(other, other.cap_bytes), {"GPU-0": PHYSICAL_GPU})
    reading = GpuReading(
        uuid="GPU-0", index=0, name="H100", memory_total_bytes=PHYSICAL_GPU, memory_used_bytes=0, time_s=0.0
    )
    placement = choose_gpu([reading], ledger, incoming, PartitionConfig(), pin="bound", now_s=100.0)
    return placement.requeue, placement.cap_bytes


def test_a_cap_shrinks_towards_the_booking_where_a_gpu_fills() -> None:
    def job(number: int) -> Demand:
        return demand(number, 9 * GIB, 12 * GIB + 512 * MIB, 8 * GIB, f"model {number}")

    assert choose(job(1)) == (False, 12 * GIB + 512 * MIB)
    requeue, cap = choose(job(4), job(1), job(2), job(3))
    assert not requeue and cap is not None and 9 * GIB <= cap < 12 * GIB


def test_what_earlier_jobs_were_lent_keeps_no_job_from_what_he_books() -> None:
    """Slurm counts bookings alone: a job that it starts would be requeued again and again."""
    wide = demand(1, 6 * GIB, 30 * GIB, 5 * GIB, "same")
    left = 5 * GIB + isqrt((30 * GIB) ** 2 - (25 * GIB) ** 2)
    assert choose(demand(2, 6 * GIB, 30 * GIB, 5 * GIB, "other"), wide) == (False, left)
    assert choose(demand(2, 12 * GIB, 20 * GIB, 12 * GIB, "other"), wide) == (False, 12 * GIB)
    assert choose(demand(2, 34 * GIB, 40 * GIB, 34 * GIB, "other"), wide) == (False, 34 * GIB)
    assert choose(demand(2, 34 * GIB + 1, 40 * GIB, 34 * GIB, "other"), wide)[0] is True


def test_the_ledger_gives_nothing_that_the_pooled_reserve_may_need() -> None:
    first = allocation(demand(1, 6 * GIB, 30 * GIB, 5 * GIB, "a"), 30 * GIB)
    second = allocation(demand(2, 6 * GIB, 30 * GIB, 5 * GIB, "b"), 30 * GIB)
    ledger = Ledger().reserve(first, {"GPU-0": PHYSICAL_GPU})
    with pytest.raises(LedgerError, match="overcommitted"):
        ledger.reserve(second, {"GPU-0": PHYSICAL_GPU})
    ledger.reserve(replace(second, cap_bytes=10 * GIB), {"GPU-0": PHYSICAL_GPU + GIB * 2 + MIB})
    ledger.reserve(replace(second, cap_bytes=None, booked_bytes=34 * GIB), {"GPU-0": PHYSICAL_GPU})
    with pytest.raises(LedgerError, match="overbooked"):
        ledger.reserve(replace(second, cap_bytes=None, booked_bytes=34 * GIB + 1), {"GPU-0": PHYSICAL_GPU})


@dataclass(frozen=True)
class Step:
    gpus: int
    whole: bool
    booked_bytes: int
    cap_bytes: int | None
    gpu_indices: tuple[int, ...]
    ends: int


STEPS = st.lists(
    st.builds(
        Step,
        gpus=st.integers(1, 3),
        whole=st.booleans(),
        booked_bytes=st.integers(1, 30 * GIB),
        cap_bytes=st.none() | st.integers(1, 60 * GIB),
        gpu_indices=st.permutations(range(4)).map(tuple),
        ends=st.integers(0, 20),
    ),
    max_size=15,
)


@settings(deadline=None)
@given(
    steps=STEPS,
    pin=st.sampled_from(["slurm", "bound"]),
    policy=st.sampled_from(["magm", "lug", "round_robin"]),
)
def test_jobs_of_several_gpus_never_exceed_any_of_them(
    steps: list[Step], pin: Pin, policy: PolicyName
) -> None:
    """Jobs of one to three GPUs come and go, whole or shared: the ledger takes all that placement chooses."""
    physical_gpus = {f"GPU-{index}": PHYSICAL_GPU for index in range(4)}
    readings = [
        GpuReading(
            uuid=uuid,
            index=index,
            name="H100",
            memory_total_bytes=PHYSICAL_GPU,
            memory_used_bytes=0,
            time_s=0.0,
        )
        for index, uuid in enumerate(physical_gpus)
    ]
    ledger = Ledger()
    for number, step in enumerate(steps, start=1):
        ledger = ledger.release(step.ends, restart=0)
        wanted = replace(
            demand(number, step.booked_bytes, step.cap_bytes, None, None),
            kind="whole" if step.whole else "shared",
            gpus=step.gpus,
            gpu_indices=step.gpu_indices[: step.gpus],
        )
        placement = choose_gpu(readings, ledger, wanted, PartitionConfig(policy=policy), pin=pin, now_s=100.0)
        if placement.requeue:
            continue
        assert len(set(placement.gpus)) == step.gpus == len(placement.gpus)
        existing = replace(
            allocation(wanted, placement.cap_bytes),
            kind=wanted.kind,
            gpus=placement.gpus,
            gpu_indices=wanted.gpu_indices,
            booked_bytes=PHYSICAL_GPU if step.whole else step.booked_bytes,
        )
        ledger = ledger.reserve(existing, physical_gpus)
        for uuid in physical_gpus:
            assert sum(one.booked_bytes for one in ledger.on(uuid)) <= PHYSICAL_GPU
            assert len(ledger.on(uuid)) <= 1 or all(one.kind == "shared" for one in ledger.on(uuid))
