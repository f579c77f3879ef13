"""Compare the memory of the same runs measured twice, e.g. on two GPUs. No I/O."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from gpumemnet.learning.dataset.store import Record, row_key
from gpumemnet.units import MIB


def compare(rows: Iterable[Record], others: Iterable[Record]) -> str:
    """Report in three lines how the runs of `rows` differ from the same runs among `others`.

    Args:
        rows: Measured rows.
        others: Rows of another GPU, with the same seeds and indices.

    Raises:
        ValueError: No run is in both.
    """
    known = {row_key(row): row for row in others if row["outcome"] == "ok"}
    pairs = [(row, known[row_key(row)]) for row in rows if row["outcome"] == "ok" and row_key(row) in known]
    if not pairs:
        raise ValueError("no run is in both files")
    reserved = [row["reserved_peak_bytes"] / other["reserved_peak_bytes"] - 1 for row, other in pairs]
    process = [row["process_peak_bytes"] / other["process_peak_bytes"] - 1 for row, other in pairs]
    base = [(row["base_bytes"] - other["base_bytes"]) / MIB for row, other in pairs]
    first, second = pairs[0]
    same = sum(value == 0 for value in reserved)
    return "\n".join(
        (
            f"{first['gpu']} against {second['gpu']}: {len(pairs)} runs",
            f"reserved peak: the same to the byte in {same}, else {min(reserved):+.1%} to {max(reserved):+.1%};"
            f" process peak {min(process):+.1%} to {max(process):+.1%}",
            f"base: median difference {statistics.median(base):+.0f} MiB, {min(base):+.0f} to {max(base):+.0f}",
        )
    )
