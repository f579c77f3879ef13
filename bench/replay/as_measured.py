"""Rewrite a trace with its trainings' memory on an H200: python -m replay.as_measured TRACE NEW.

Published traces tell what was seen on an A100 with another release: on an H200 some of their trainings take 1.7 times
as much, some a third. Who sizes by hand, and the oracle, must know what is true where the replay runs. Workloads that
were never measured keep what the trace says.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from replay.workloads import measured_mib


def rewritten(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return a trace's rows with the measured memory.

    Args:
        rows: As csv.DictReader reads them.

    Returns:
        The same with `mem_mib`, in place of any column whose name begins so.
    """
    found = []
    for row in rows:
        reported = next((value for name, value in row.items() if name.startswith("mem_mib")), "")
        mib = measured_mib(row["workload"])
        kept = {name: value for name, value in row.items() if not name.startswith("mem_mib")}
        found.append(kept | {"mem_mib": reported if mib is None else str(mib)})
    return found


def main() -> None:
    """Write the trace."""
    source, target = map(Path, sys.argv[1:])
    with source.open(newline="") as file:
        rows = rewritten(list(csv.DictReader(file)))
    with target.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
