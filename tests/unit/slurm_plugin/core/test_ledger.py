from __future__ import annotations

import json
from dataclasses import replace

import pytest

from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger import Ledger, from_json, to_json
from slurm_plugin.core.records import Reservation
from slurm_plugin.core.units import GIB

ROOM = {"GPU-0": 10 * GIB, "GPU-1": 10 * GIB}


def shared(job_id: int, gib: int, gpu: str = "GPU-0", restart: int = 0) -> Reservation:
    return Reservation(
        job_id=job_id,
        user_id=1000,
        kind="shared",
        gpus=(gpu,),
        seats=(0,),
        booked_bytes=gib * GIB,
        created_s=1.0,
        restart=restart,
    )


def whole(job_id: int, *gpus: str) -> Reservation:
    return Reservation(
        job_id=job_id,
        user_id=1000,
        kind="whole",
        gpus=gpus,
        seats=(0,),
        booked_bytes=10 * GIB,
        created_s=1.0,
    )


def test_shared_jobs_fill_a_gpu_to_the_last_byte_and_no_further() -> None:
    ledger = Ledger().reserve(shared(1, 6), ROOM).reserve(shared(2, 4), ROOM)
    assert [held.job_id for held in ledger.on("GPU-0")] == [1, 2]
    with pytest.raises(LedgerError, match="overbooked"):
        ledger.reserve(shared(3, 1), ROOM)


def test_strangers_memory_cannot_be_booked() -> None:
    with pytest.raises(LedgerError, match="overbooked"):
        Ledger().reserve(shared(1, 6), {"GPU-0": 5 * GIB})


@pytest.mark.parametrize("order", [(shared(1, 1), whole(2, "GPU-0")), (whole(1, "GPU-0"), shared(2, 1))])
def test_a_whole_gpu_has_one_holder(order: tuple[Reservation, Reservation]) -> None:
    ledger = Ledger().reserve(order[0], ROOM)
    with pytest.raises(LedgerError, match="exclusive"):
        ledger.reserve(order[1], ROOM)


def test_a_reservation_needs_gpus_that_are_there_and_distinct() -> None:
    for wrong in (whole(1), whole(1, "GPU-0", "GPU-0"), whole(1, "GPU-9")):
        with pytest.raises(LedgerError):
            Ledger().reserve(wrong, ROOM)


def test_reserving_again_replaces_and_releasing_again_does_nothing() -> None:
    ledger = Ledger().reserve(shared(1, 6), ROOM)
    again = ledger.reserve(shared(1, 9, gpu="GPU-1", restart=1), ROOM)
    assert again.reservations == (shared(1, 9, gpu="GPU-1", restart=1),)
    released = again.release(1, restart=1)
    assert released.reservations == ()
    assert released.release(1, restart=1) is released


def test_a_late_epilog_of_an_earlier_run_releases_nothing() -> None:
    ledger = Ledger().reserve(shared(1, 6, restart=2), ROOM)
    assert ledger.release(1, restart=1) is ledger
    with pytest.raises(LedgerError, match="later run"):
        ledger.reserve(shared(1, 6, restart=1), ROOM)


def test_json_keeps_everything() -> None:
    ledger = Ledger().reserve(shared(1, 6), ROOM).reserve(whole(2, "GPU-1"), ROOM)
    assert from_json(json.loads(json.dumps(to_json(ledger)))) == ledger


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tree: tree.pop("reservations"),
        lambda tree: tree["reservations"].append(tree["reservations"][0]),
        lambda tree: tree["reservations"][0].pop("gpus"),
        lambda tree: tree["reservations"][0].update(gpus=[]),
        lambda tree: tree["reservations"][0].update(booked_bytes="7"),
        lambda tree: tree["reservations"][0].update(kind="half"),
        lambda tree: tree["reservations"][0].update(surprise=1),
        lambda tree: tree.update(reservations=7),
    ],
)
def test_what_is_no_ledger_is_refused(spoil: object) -> None:
    tree = json.loads(json.dumps(to_json(Ledger().reserve(shared(1, 6), ROOM))))
    spoil(tree)  # type: ignore[operator]
    with pytest.raises(LedgerError):
        from_json(tree)


def test_a_gpus_memory_that_a_neighbour_of_the_same_job_holds_is_not_counted_twice() -> None:
    ledger = Ledger().reserve(shared(1, 6), ROOM)
    assert ledger.reserve(replace(shared(1, 8), restart=1), ROOM).on("GPU-0")[0].booked_bytes == 8 * GIB
