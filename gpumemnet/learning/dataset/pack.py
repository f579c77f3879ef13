"""Merge the raw records of several runs into the final file. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from gpumemnet.learning.dataset.store import Record, row_key
from gpumemnet.units import MIB

SESSION_KEYS = ("gpu", "driver", "torch", "cuda", "python", "kernel", "libraries")
ACTIVITY_KEYS = ("smact_pct", "smocc_pct", "tensor_pct", "dram_pct")
LARGEST_USUAL_BASE_BYTES = 800 * MIB
KEPT_OUTCOMES = ("ok", "oom")
WORKING_KEYS = ("estimate_s", "context_s", "train_s", "neighbours", "alone")
"""Values about the measuring process, which are irrelevant in the data."""


def pack(raw_files: Iterable[Iterable[Record]]) -> list[Record]:
    """Return one row per configuration, by its name: successes and clean out-of-memory ends.

    Each row has the versions of its session. If a configuration was measured again alone, its activity counters and its
    undisturbed step time are copied into the row.

    Args:
        raw_files: The records of each raw file in order, each file starting with a session record; or the rows of a
            packed file, which stay unchanged.
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
    """Return whether the allocator had to free cached memory: neighbours affected the measurement."""
    return record["outcome"] == "ok" and bool(record.get("num_alloc_retries")) and not record["alone"]


def _inherited(record: Record) -> bool:
    """Return whether a reused process still holds libraries that only an earlier row needed.

    Of the processes with one row, 99 % have a base of at most 790 MiB; a few convolutions load 400 MiB more.
    """
    base_bytes = record.get("base_bytes") or 0
    return record.get("runs_before", 0) > 0 and base_bytes > LARGEST_USUAL_BASE_BYTES


def _clean(record: Record) -> Record:
    """Remove values about the measuring process; a step time that neighbours disturbed is invalid."""
    row = {"variant": 0, "runs_before": 0} | {
        key: value for key, value in record.items() if key not in WORKING_KEYS
    }
    if record["outcome"] == "ok" and not record["alone"]:
        row["step_time_s"] = None
    return dict.fromkeys(ACTIVITY_KEYS) | row if record["outcome"] == "ok" else row


def _merged(first: Record, second: Record) -> Record:
    """Return the first row, completed from the second."""
    return {key: second.get(key) if value is None else value for key, value in first.items()} | {
        key: value for key, value in second.items() if key not in first
    }
