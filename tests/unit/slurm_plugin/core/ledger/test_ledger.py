from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import GIB

SPACE = {"GPU-0": 10 * GIB, "GPU-1": 10 * GIB}


def shared(job_id: int, gib: int, gpu: str = "GPU-0", restart: int = 0) -> Allocation:
    return Allocation(
        job_id=job_id,
        user_id=1000,
        kind="shared",
        gpus=(gpu,),
        gpu_indices=(0,),
        booked_bytes=gib * GIB,
        created_s=1.0,
        restart=restart,
    )


def whole(job_id: int, *gpus: str) -> Allocation:
    return Allocation(
        job_id=job_id,
        user_id=1000,
        kind="whole",
        gpus=gpus,
        gpu_indices=(0,),
        booked_bytes=10 * GIB,
        created_s=1.0,
    )


def test_shared_jobs_fill_a_gpu_to_the_last_byte_and_no_further() -> None:
    ledger = Ledger().reserve(shared(1, 6), SPACE).reserve(shared(2, 4), SPACE)
    assert [allocation.job_id for allocation in ledger.on("GPU-0")] == [1, 2]
    with pytest.raises(LedgerError, match="overbooked"):
        ledger.reserve(shared(3, 1), SPACE)


def test_unmanaged_memory_cannot_be_booked() -> None:
    with pytest.raises(LedgerError, match="overbooked"):
        Ledger().reserve(shared(1, 6), {"GPU-0": 5 * GIB})


@pytest.mark.parametrize("order", [(shared(1, 1), whole(2, "GPU-0")), (whole(1, "GPU-0"), shared(2, 1))])
def test_a_whole_gpu_has_one_holder(order: tuple[Allocation, Allocation]) -> None:
    ledger = Ledger().reserve(order[0], SPACE)
    with pytest.raises(LedgerError, match="exclusive"):
        ledger.reserve(order[1], SPACE)


def test_a_whole_gpu_is_given_although_an_unmanaged_process_holds_a_part_of_it() -> None:
    """Slurm gave it, and the job would wait for good; the guard names what uses it."""
    assert Ledger().reserve(whole(1, "GPU-0"), {"GPU-0": 3 * GIB}).of_job(1) is not None


def test_an_allocation_needs_gpus_that_are_there_and_distinct() -> None:
    for wrong in (whole(1), whole(1, "GPU-0", "GPU-0"), whole(1, "GPU-9")):
        with pytest.raises(LedgerError):
            Ledger().reserve(wrong, SPACE)


def test_reserving_again_replaces_and_releasing_again_does_nothing() -> None:
    ledger = Ledger().reserve(shared(1, 6), SPACE)
    again = ledger.reserve(shared(1, 9, gpu="GPU-1", restart=1), SPACE)
    assert again.allocations == (shared(1, 9, gpu="GPU-1", restart=1),)
    released = again.release(1, restart=1)
    assert released.allocations == ()
    assert released.release(1, restart=1) is released


def test_a_late_epilog_of_an_earlier_run_releases_nothing() -> None:
    ledger = Ledger().reserve(shared(1, 6, restart=2), SPACE)
    assert ledger.release(1, restart=1) is ledger
    with pytest.raises(LedgerError, match="later run"):
        ledger.reserve(shared(1, 6, restart=1), SPACE)


def test_a_gpus_memory_that_a_neighbour_of_the_same_job_holds_is_not_counted_twice() -> None:
    ledger = Ledger().reserve(shared(1, 6), SPACE)
    assert ledger.reserve(replace(shared(1, 8), restart=1), SPACE).on("GPU-0")[0].booked_bytes == 8 * GIB


def test_what_slurm_gave_to_other_jobs_is_noted_and_no_job_shares_it() -> None:
    given = replace(whole(2, "GPU-0"), managed=False)
    ledger = Ledger().reserve(shared(1, 6), SPACE).note(given)
    assert [allocation.job_id for allocation in ledger.on("GPU-0")] == [1, 2], (
        "it runs there already, whatever that breaks"
    )
    with pytest.raises(LedgerError, match="exclusive"):
        ledger.reserve(shared(3, 1), SPACE)
    assert ledger.note(replace(given, restart=1)).of_job(2) == replace(given, restart=1)
    late = ledger.note(replace(given, restart=1)).note(given)
    assert [(allocation.job_id, allocation.restart) for allocation in late.allocations] == [(1, 0), (2, 1)]


def test_round_robin_goes_on_behind_the_last_of_several_gpus() -> None:
    assert Ledger().reserve(whole(1, "GPU-0", "GPU-1"), SPACE).last_gpu == "GPU-1"
