"""From the raw records of several runs to the one clean file that is kept: pure."""

from __future__ import annotations

from collections.abc import Iterable

from gpumemnet.learning.dataset.store import Record, row_key
from gpumemnet.units import MIB

SESSION_KEYS = ("gpu", "driver", "torch", "cuda", "python", "kernel", "libraries")
ACTIVITY_KEYS = ("smact_pct", "smocc_pct", "tensor_pct", "dram_pct")
LARGEST_USUAL_BASE_BYTES = 800 * MIB
KEPT_OUTCOMES = ("ok", "oom")
WORKING_KEYS = ("estimate_s", "context_s", "train_s", "neighbours", "alone")
"""Figures of the measuring itself; of no use to a reader of the data."""


def pack(raw_files: Iterable[Iterable[Record]]) -> list[Record]:
    """Return one row per configuration, by its name: successes and clean out-of-memory ends.

    Each row carries the versions of the session that made it. Where a configuration was measured a second time by
    itself, its activity counters and its undisturbed step time are taken over into the row.

    Args:
        raw_files: The records of each raw file in order, each file opening with a session record; or the rows of a
            file that was packed before, which stay as they are.
    """
    rows: dict[tuple[int, int, int], Record] = {}
    for records in raw_files:
        session: Record = {}
        for record in records:
            if record.get("session"):
                session = {key: record[key] for key in SESSION_KEYS if key in record}
                continue
            if record["outcome"] not in KEPT_OUTCOMES:
                continue
            packed = _packed(record)
            if not packed and (_squeezed(record) or _inherited(record)):
                continue
            key = row_key(record)
            row = record if packed else _clean(record | session)
            rows[key] = _merged(rows[key], row) if key in rows else row
    return [rows[key] for key in sorted(rows)]


def _packed(record: Record) -> bool:
    return not any(key in record for key in WORKING_KEYS)


def _squeezed(record: Record) -> bool:
    """Return whether the allocator had to give memory back: neighbours had part in what was measured."""
    return record["outcome"] == "ok" and bool(record.get("num_alloc_retries")) and not record["alone"]


def _inherited(record: Record) -> bool:
    """Return whether a process that is used again still holds libraries that only an earlier row needed.

    Of the processes that ran one row, 99 % have a base of at most 790 MiB; a few convolutions load 400 MiB more.
    """
    base_bytes = record.get("base_bytes") or 0
    return record.get("runs_before", 0) > 0 and base_bytes > LARGEST_USUAL_BASE_BYTES


def _clean(record: Record) -> Record:
    """Drop the figures of the measuring; a step time that neighbours disturbed is not a step time."""
    row = {"variant": 0, "runs_before": 0} | {
        key: value for key, value in record.items() if key not in WORKING_KEYS
    }
    if record["outcome"] == "ok" and not record["alone"]:
        row["step_time_s"] = None
    return dict.fromkeys(ACTIVITY_KEYS) | row if record["outcome"] == "ok" else row


def _merged(first: Record, second: Record) -> Record:
    """Return the first row with what only the second knows."""
    return {key: second.get(key) if value is None else value for key, value in first.items()} | {
        key: value for key, value in second.items() if key not in first
    }
