"""What was found, as a table and as a list."""

from __future__ import annotations

import string
from collections import Counter, defaultdict
from typing import Any

from comparison.compare import Difference

Row = dict[str, Any]

MARKS = {"same": "", "differs": "d", "only with": "w", "fails": "F"}
"""Every result, and how a table writes it."""


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
    """Return tables of heads and of forms with a column for each Slurm and kind of site, and the counts of all.

    A number says how many submissions' forms were the same; "d" differed, "w" ran only with RAD, "F" fail with it.
    """
    columns = list(dict.fromkeys((row["slurm"], row["variant"]) for row in rows))
    parts = [_table(rows, columns, key) for key in ("head", "form")]
    for column in columns:
        count = Counter(row["result"] for row in rows if (row["slurm"], row["variant"]) == column)
        reported = ", ".join(f"{count[name]} {name}" for name in MARKS)
        parts.append(f"Slurm {column[0]}, {column[1]}: {reported}")
    return "\n".join(parts)


def _table(rows: list[Row], columns: list[tuple[str, str]], key: str) -> str:
    counts: dict[str, dict[tuple[str, str], Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        counts[row[key]][row["slurm"], row["variant"]][row["result"]] += 1
    lines = [f"{key:<28}" + "".join(f"{' '.join(column):>24}" for column in columns)]
    for name, found in counts.items():
        cells = (
            " ".join(
                f"{found[column][result]}{mark}" for result, mark in MARKS.items() if found[column][result]
            )
            for column in columns
        )
        lines.append(f"{name:<28}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join([*lines, ""])


def grid(rows: list[Row]) -> str:
    """Return every form of every head: a line for each form, a column for each head, a block for each Slurm.

    "." is the same in every submission; of several results the gravest has its mark; a blank was not run.
    """
    blocks: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        blocks[f"Slurm {row['slurm']}, {row['variant']}"].append(row)
    return "\n".join(f"{title}\n{_block(found)}" for title, found in blocks.items())


def _block(rows: list[Row]) -> str:
    letters = dict(zip(dict.fromkeys(row["head"] for row in rows), string.ascii_letters, strict=False))
    order = list(MARKS)
    worst: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        place = row["form"], row["head"]
        worst[place] = max(worst[place], order.index(row["result"]))
    marks = {place: MARKS[order[number]] or "." for place, number in worst.items()}
    lines = [f"{'':<28}{''.join(letters.values())}"]
    for form in dict.fromkeys(row["form"] for row in rows):
        lines.append(f"{form:<28}{''.join(marks.get((form, head), ' ') for head in letters)}".rstrip())
    return "\n".join([*lines, ", ".join(f"{letter} {head}" for head, letter in letters.items()), ""])


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
