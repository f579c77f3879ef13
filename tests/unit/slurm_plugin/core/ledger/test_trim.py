from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_plugin.core.ledger.trim import SETTLED_SAMPLES, settled_bytes
from slurm_plugin.core.records.node import Reservation
from slurm_plugin.core.units import GIB, MIB

HELD = Reservation(
    job_id=1,
    user_id=1000,
    kind="shared",
    gpus=("GPU-0",),
    seats=(0,),
    booked_bytes=20 * GIB,
    created_s=0.0,
    estimate_bytes=12 * GIB,
)


def test_a_settled_job_needs_its_peak_and_a_margin() -> None:
    found = settled_bytes(HELD, age_s=900.0, peak_bytes=10 * GIB, steady_samples=SETTLED_SAMPLES)
    assert found == int(10 * GIB * 1.05) + 256 * MIB


@pytest.mark.parametrize(
    ("held", "peak_bytes", "steady_samples"),
    [
        (HELD, 10 * GIB, SETTLED_SAMPLES - 1),
        (HELD, None, SETTLED_SAMPLES),
        (HELD, 5 * GIB, SETTLED_SAMPLES),
        (HELD, 19 * GIB, SETTLED_SAMPLES),
        (replace(HELD, estimate_bytes=None), 10 * GIB, SETTLED_SAMPLES),
        (replace(HELD, kind="whole"), 10 * GIB, SETTLED_SAMPLES),
        (replace(HELD, managed=False), 10 * GIB, SETTLED_SAMPLES),
    ],
    ids=["too soon", "nobody saw it", "has not begun", "needs it all", "no estimate", "whole", "not ours"],
)
def test_what_nobody_knows_is_not_given_back(
    held: Reservation, peak_bytes: int | None, steady_samples: int
) -> None:
    assert settled_bytes(held, age_s=900.0, peak_bytes=peak_bytes, steady_samples=steady_samples) is None


def test_what_was_seen_before_a_run_began_says_nothing_of_it() -> None:
    assert settled_bytes(HELD, age_s=SETTLED_SAMPLES - 1, peak_bytes=10 * GIB, steady_samples=500) is None
    assert settled_bytes(HELD, age_s=SETTLED_SAMPLES, peak_bytes=10 * GIB, steady_samples=500) is not None
