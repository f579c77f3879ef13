"""Store records in files: JSON lines during a run, compressed for storage."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

Record = dict[str, Any]
DATA = Path(__file__).resolve().parents[2] / "data"
TRAINING_ROWS = DATA / "train_h200.jsonl.xz"
TRAINING_TEXTS = DATA / "train_h200_texts.jsonl.xz"
TRACED_ROWS = DATA / "families_traced.jsonl.xz"
"""Families that were traced and not measured, from bench/estimator/families.py."""
HELDOUT_ROWS = DATA / "heldout_h200.jsonl.xz"


def _open(path: Path, mode: str) -> TextIO:
    if path.suffix == ".xz":
        preset = None if mode == "r" else lzma.PRESET_EXTREME | 9
        return cast(TextIO, lzma.open(path, mode + "t", encoding="utf-8", preset=preset))
    return cast(TextIO, open(path, mode, encoding="utf-8"))


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a .jsonl or .jsonl.xz file, without a last line cut off by a kill."""
    with _open(path, "r") as lines:
        for line in lines:
            if not line.endswith("\n"):
                return
            yield json.loads(line)


def write_records(path: Path, records: Iterable[Record]) -> int:
    """Write all records, one line each with sorted keys; return their number.

    Args:
        path: A .jsonl or .jsonl.xz file, which is overwritten.
        records: The records.
    """
    count = 0
    with _open(path, "w") as out:
        for record in records:
            out.write(json.dumps(record, sort_keys=True, separators=(",", ":")) + "\n")
            count += 1
    return count


def appender(path: Path) -> Callable[[Record], None]:
    """Return a function that appends one record without buffering."""
    out = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open as long as the process lives

    def append(record: Record) -> None:
        out.write(json.dumps(record, sort_keys=True, separators=(",", ":")) + "\n")

    return append


def row_key(record: Record) -> tuple[int, int, int]:
    """Return (seed, index, variant), which identify a configuration."""
    return record["seed"], record["index"], record.get("variant", 0)


def done_keys(paths: Iterable[Path]) -> set[tuple[int, int, int]]:
    """Return the keys of the stored configurations."""
    return {
        row_key(record)
        for path in paths
        if path.exists()
        for record in read_records(path)
        if "index" in record
    }
