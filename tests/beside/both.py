"""One variant with RAD and without: the same cells on both, and what differs."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

from beside.catalogue import Cell, Release, cells
from beside.clusters import Variant, new_place, running
from beside.compare import Difference, compare
from beside.runs import Record, run_cells
from beside.table import Row, rows_of

from slurm_plugin.core.process.run import run
from slurm_plugin.slurm.queries.printed import parse_version

LIMIT_S = 1800.0
AGAIN = 60
"""How many cells that differ are run again, the gravest first: how busy a node is does not show twice."""


def release() -> tuple[str, Release]:
    """Return the version of the Slurm that is installed, as text and as numbers."""
    text = run(["slurmctld", "-V"], timeout_s=10).split()[-1]
    version = parse_version(f"slurm {text}")
    return text, (version[0], version[1])


def both(variant: Variant, home: Path, *, long: bool, only: str = "", limit_s: float = LIMIT_S) -> list[Row]:
    """Run a variant's cells on both clusters, keep the records, and return what was found.

    Args:
        variant: The kind of site.
        home: The checkout's own folder.
        long: Whether all cells are run.
        only: A part of the names of the heads that are run; "" for all.
        limit_s: How long the jobs of one cluster may take.
    """
    version, numbers = release()
    chosen = [
        cell
        for cell in cells(numbers, long=long)
        if only in cell.head.name and (variant.hetjobs or not cell.head.is_hetjob)
    ]
    folder = home / "beside"
    folder.mkdir(exist_ok=True)
    lock = (folder / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # both clusters have one place in a checkout
    stem = f"{version}-{variant.name}"
    pairs = _pairs(variant, home, chosen, folder / stem, limit_s)
    found = {name: compare(*pair) for name, pair in pairs.items()}
    doubtful = sorted((name for name in found if found[name]), key=lambda name: _is_calm(found[name]))[:AGAIN]
    if doubtful:
        again = [cell for cell in chosen if cell.name in doubtful]
        for name, pair in _pairs(variant, home, again, folder / f"{stem}-again", limit_s).items():
            found[name] = in_both(found[name], compare(*pair))
    rows = [
        row
        for name, pair in pairs.items()
        for row in rows_of(pair[0], found[name], slurm=version, variant=variant.name)
    ]
    keep(folder / f"{stem}.rows.jsonl", rows)
    return rows


def _pairs(
    variant: Variant, home: Path, chosen: list[Cell], stem: Path, limit_s: float
) -> dict[str, tuple[Record, Record]]:
    """Run cells without RAD, then with it; return both records of each cell."""
    sides = []
    for rad in (False, True):
        with running(variant, new_place(home, "with" if rad else "without"), rad=rad) as target:
            records = run_cells(target, chosen, limit_s=limit_s)
        keep(stem.with_name(f"{stem.name}-{'with' if rad else 'without'}.jsonl"), records)
        sides.append({record["cell"]: record for record in records})
    return {name: (record, sides[1][name]) for name, record in sides[0].items()}


def _is_calm(differences: list[Difference]) -> bool:
    return not any(one.grave or one.only_with for one in differences)


def in_both(first: list[Difference], second: list[Difference]) -> list[Difference]:
    """Return what differed twice in the same way; of what is grave, all that the second run showed of these forms.

    Args:
        first: What differed among all others.
        second: What differed with few beside it.
    """
    forms, calm = {one.form for one in first}, {(one.form, one.text) for one in first}
    return [
        one
        for one in second
        if (one.form, one.text) in calm or ((one.grave or one.only_with) and one.form in forms)
    ]


def keep(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def kept(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file that `keep` wrote."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
