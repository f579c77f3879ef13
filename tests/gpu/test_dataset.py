"""Measuring on a real GPU: what a run says must not depend on what runs next to it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gpumemnet.learning.dataset.generate import generate
from gpumemnet.learning.dataset.running.child import MeasurementJob
from gpumemnet.learning.dataset.running.nvml import Device
from gpumemnet.learning.dataset.running.runner import Runner
from gpumemnet.learning.dataset.store import TRAINING_ROWS, read_records

pytestmark = pytest.mark.gpu
GIB = 1 << 30


def measured(jobs: list[MeasurementJob], slots: int) -> dict[int, dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    Runner(jobs, Device(), rows.append, slots=slots, stop_at_s=time.monotonic() + 200).run()
    return {r["index"]: r for r in rows if r["outcome"] == "ok"}


def test_memory_is_the_same_alone_and_next_to_others() -> None:
    small = [
        r["index"] for r in read_records(TRAINING_ROWS) if r.get("process_peak_bytes", 99 * GIB) < 4 * GIB
    ][:12]
    configs = [generate(1, i) for i in small]
    together = measured([MeasurementJob(config=c, fresh=True) for c in configs], slots=12)
    apart = measured([MeasurementJob(config=c, fresh=True, alone=True, busy_s=0.3) for c in configs], slots=2)
    assert set(together) == set(apart) == set(small)
    for index in small:
        assert together[index]["process_peak_bytes"] == apart[index]["process_peak_bytes"]
        assert 0 < apart[index]["smact_pct"] <= 100
