"""How soon does a training hold what it will ever hold? From the recorded runs that tell their memory step by step.

    python bench/estimator/settled.py

For each step: the share of runs whose peak exceeded what was reserved by then, with a margin. The runs are short,
mostly three steps, so this says little about what comes much later (an evaluation, a longer batch).
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path

MARGIN = 1.05
MARGIN_BYTES = 256 * 2**20

ROWS = Path(__file__).resolve().parents[2] / "gpumemnet/data/train_h200.jsonl.xz"


def main() -> None:
    """Print one line for each step."""
    runs, exceeded, lengths = Counter[int](), Counter[int](), Counter[int]()
    with lzma.open(ROWS, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            steps = row.get("reserved_by_step_bytes")
            if not steps or row["outcome"] != "ok":
                continue
            lengths[len(steps)] += 1
            outside_bytes = row["process_peak_bytes"] - row["reserved_peak_bytes"]
            for number, reserved_bytes in enumerate(steps[:-1], start=1):
                settled_bytes = (outside_bytes + reserved_bytes) * MARGIN + MARGIN_BYTES
                runs[number] += 1
                exceeded[number] += row["process_peak_bytes"] > settled_bytes
    print("runs by number of steps:", dict(sorted(lengths.items())))
    for number in sorted(runs):
        print(
            f"after step {number}: {exceeded[number]} of {runs[number]}, {exceeded[number] / runs[number]:.2%}"
        )


if __name__ == "__main__":
    main()
