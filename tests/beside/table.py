"""What was found, as a table and as a list."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from beside.compare import Difference

Row = dict[str, Any]


def rows_of(cell: dict[str, Any], differences: list[Difference], *, slurm: str, variant: str) -> list[Row]:
    """Return one row for each form of a cell, and one for the job itself.

    Args:
        cell: The record without RAD.
        differences: What differs.
        slurm: Slurm's version.
        variant: The kind of site.
    """
    by_form: dict[str, list[Difference]] = defaultdict(list)
    for one in differences:
        by_form[one.form if one.form in cell["forms"] else "job"].append(one)
    return [
        {
            "slurm": slurm,
            "variant": variant,
            "head": cell["head"],
            "entrance": cell["entrance"],
            "form": form,
            "result": _result(by_form[form]),
            "why": [one.text for one in by_form[form]],
        }
        for form in ("job", *cell["forms"])
    ]


def _result(found: list[Difference]) -> str:
    if any(one.grave for one in found):
        return "fails"
    if any(one.only_with for one in found):
        return "only with"
    return "differs" if found else "same"


def summary(rows: list[Row]) -> str:
    """Return a table of heads: how many forms were the same, and how many were not."""
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        counts[row["slurm"], row["variant"], f"{row['head']} ({row['entrance']})"][row["result"]] += 1
    lines = [
        f"{'slurm':<9} {'variant':<15} {'head':<36} {'same':>5} {'differs':>8} {'only with':>10} {'fails':>6}"
    ]
    for (slurm, variant, head), count in counts.items():
        numbers = f"{count['same']:>5} {count['differs']:>8} {count['only with']:>10} {count['fails']:>6}"
        lines.append(f"{slurm:<9} {variant:<15} {head:<36} {numbers}")
    total = Counter(row["result"] for row in rows)
    lines.append(
        f"{len(rows)} cells: "
        + ", ".join(f"{total[name]} {name}" for name in ("same", "differs", "only with", "fails"))
    )
    return "\n".join(lines)


def reasons(rows: list[Row], result: str) -> str:
    """Return what differs, the most frequent first, each with the cells that show it.

    Args:
        rows: What was found.
        result: Which rows count.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row["result"] == result:
            for why in row["why"]:
                found[why].append(f"{row['head']}.{row['entrance']}:{row['form']}")
    lines = []
    for why, where in sorted(found.items(), key=lambda item: -len(item[1])):
        more = f" and {len(where) - 4} more" if len(where) > 4 else ""
        lines.append(f"{len(where):>5}  {why}\n         in {', '.join(where[:4])}{more}")
    return "\n".join(lines)
