"""Write the rows of tests/faults into docs/measurements/2026-11-faults.md, between its marks.

RAD_FAULTS=long python -Im pytest tests/faults -m cluster       # adds rows to .rad/faults.jsonl
python bench/faults/reliability.py ROWS.jsonl...                       # the last row of each fault and Slurm counts
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "2026-11-faults.md"
COLUMNS = (
    "fault",
    "Slurm",
    "jobs",
    "lost (alone)",
    "double-booked (alone)",
    "drained",
    "left over",
    "delay, median / longest",
    "at",
)


def read_rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the rows of some files in their order; half a line is none."""
    rows = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append({"run": 0, **json.loads(line)})
            except ValueError:
                continue
    return rows


def fault_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of faults, the last row of each on each Slurm, by fault and then by version."""
    last = {(row["fault"], row["slurm"]): row for row in rows if "fault" in row}
    names = list(dict.fromkeys(row["fault"] for row in last.values()))
    lines = [_line(COLUMNS), _line("---" for _ in COLUMNS)]
    for name in names:
        for _, row in sorted(item for item in last.items() if item[0][0] == name):
            lines.append(
                _line(
                    (
                        row["fault"],
                        row["slurm"],
                        row["jobs"],
                        f"{row['lost']} ({row['lost_alone']})",
                        f"{row['double_booked']} ({row['double_booked_alone']}) of {row['samples']}",
                        row["drained"],
                        row["leftovers"],
                        f"{row['median_s']:g} / {row['longest_s']:g} s",
                        row.get("commit") or "-",
                    )
                )
            )
    return "\n".join(lines)


def attempt_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of hostile attempts: tried and won on each Slurm, in the last session there.

    Several forms of one attempt are counted together.
    """
    attempts: dict[str, dict[str, list[bool]]] = {}
    last: dict[str, int] = {}
    for row in rows:
        if "attempt" in row:
            last[row["slurm"]] = max(row["run"], last.get(row["slurm"], 0))
    for row in rows:
        if "attempt" in row and row["run"] == last[row["slurm"]]:
            attempts.setdefault(row["attempt"], {}).setdefault(row["slurm"], []).append(row["won"])
    versions = sorted({version for tried in attempts.values() for version in tried})
    lines = [
        _line(("attempt", *(f"{v}: tried, won" for v in versions))),
        _line("---" for _ in range(len(versions) + 1)),
    ]
    for name, tried in attempts.items():
        cells = [
            f"{len(tried[v])}, {'**' if any(tried[v]) else ''}{sum(tried[v])}{'**' if any(tried[v]) else ''}"
            if v in tried
            else "-"
            for v in versions
        ]
        lines.append(_line((name, *cells)))
    return "\n".join(lines)


def _line(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def put_in(page: str, mark: str, table: str) -> str:
    r"""Return a page with a table between the marks of a name.

    Raises:
        ValueError: The page has no such marks.

    >>> put_in("<!-- a -->old<!-- /a -->", "a", "new")
    '<!-- a -->\\n\\nnew\\n\\n<!-- /a -->'
    """
    before, begin, rest = page.partition(f"<!-- {mark} -->")
    _, end, after = rest.partition(f"<!-- /{mark} -->")
    if not begin or not end:
        raise ValueError(f"no marks for {mark}")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="+", type=Path)
    options = parser.parse_args()
    rows = read_rows(options.rows)
    page = PAGE.read_text(encoding="utf-8")
    page = put_in(page, "faults", fault_table(rows))
    PAGE.write_text(put_in(page, "attempts", attempt_table(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
