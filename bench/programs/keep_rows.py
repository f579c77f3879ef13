"""Pack rows for docs/results: python bench/programs/keep_rows.py ROWS... --out FILE.jsonl.xz.

ROWS are lines of measure_programs.py and trace_programs.py, and files packed earlier. Of several rows of a program and
kind the last that measured or traced it counts, else the last. What the tables need is kept: of each program's steps
the most that the allocator held after its trials, and what lay outside it.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SETTLED_AFTER = 3
"""Steps after which cuDNN's trials are over."""
_KEPT = (
    "kind",
    "script",
    "ended",
    "steps",
    "alone",
    "process_peak_bytes",
    "reserved_peak_bytes",
    "allocated_peak_bytes",
    "gpu",
    "driver",
    "cudnn",
    "alloc_retries",
)
_PACKAGES = ("torch", "torchvision", "timm", "transformers", "accelerate", "lightning")


def read(path: Path) -> list[dict[str, Any]]:
    """Return rows.

    Args:
        path: Their file, packed or not.
    """
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def measured(row: dict[str, Any]) -> dict[str, Any]:
    """Return a measured row without what no table needs.

    Args:
        row: Of measure_programs.py, or kept earlier.
    """
    if "held_bytes" in row:
        return row
    kept = {name: row[name] for name in _KEPT if row.get(name) is not None}
    steps = row.get("held_by_step_bytes") or []
    settled = steps[SETTLED_AFTER:] or steps[-1:]
    if settled:
        kept["held_bytes"], kept["held_first_bytes"] = max(settled), settled[0]
        kept["outside_bytes"] = max(row["outside_by_step_bytes"])
    if versions := row.get("versions"):
        kept["versions"] = {name: versions[name] for name in _PACKAGES if versions.get(name)}
    if "log" in row:
        kept["log"] = next((line for line in reversed(row["log"].splitlines()) if line.strip()), "")[:200]
    return kept


def works(row: dict[str, Any]) -> bool:
    """Tell whether a row holds a result."""
    return "profile" in row or row.get("steps", 0) >= SETTLED_AFTER


def last(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one row of each program and kind.

    Args:
        rows: In the order in which they were made.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["kind"], row["script"])
        if key not in found or works(row) or not works(found[key]):
            found[key] = row
    for row in found.values():
        yield measured(row) if row["kind"] == "measured" else row


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = [row for path in options.rows for row in read(path)]
    kept = [json.dumps(row, sort_keys=True, separators=(",", ":")) for row in last(rows)]
    with lzma.open(options.out, "wt", encoding="utf-8", preset=lzma.PRESET_EXTREME | 9) as file:
        file.writelines(f"{row}\n" for row in kept)
    print(f"{len(kept)} rows")


if __name__ == "__main__":
    main()
