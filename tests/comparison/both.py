"""One variant with RAD and without: the same cells on both, and what differs."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from comparison.catalogue import Cell, Release, Size, cells
from comparison.clusters import Variant, new_place, running
from comparison.compare import Difference, compare
from comparison.runs import Record, run_cells
from comparison.table import Row, rows_of

from slurm_plugin.core.process.run import run
from slurm_plugin.slurm.versions import parse_version

LIMIT_S = 1800.0
"""How long the jobs of one cluster may take."""
AGAIN = 60
"""How many cells that differ are run again, the gravest first: how busy a node is does not show twice."""


def release() -> tuple[str, Release]:
    """Return the version of the Slurm that is installed, as text and as numbers."""
    text = run(["slurmctld", "-V"], timeout_s=10).split()[-1]
    version = parse_version(f"slurm {text}")
    return text, (version[0], version[1])


def both(
    variant: Variant, home: Path, *, size: Size, names: frozenset[str] | None = None, lane: int = 0
) -> list[Row]:
    """Run a variant's cells on both clusters, keep what was found of each head, and return it.

    Args:
        variant: The kind of site.
        home: The checkout's own folder.
        size: Which cells are run.
        names: The heads that are run; None for all.
        lane: Which pair of clusters is used; each has a place of its own.
    """
    version, numbers = release()
    chosen = [cell for cell in cells(numbers, size=size) if names is None or cell.head.name in names]
    chosen = [cell for cell in chosen if variant.hetjobs or not cell.head.is_hetjob]
    folder = results_of(variant, home, size)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(home, lane):
        pairs = _pairs(variant, home, chosen, lane)
        found = {name: compare(*pair) for name, pair in pairs.items()}
        doubtful = sorted((name for name in found if found[name]), key=lambda name: _is_calm(found[name]))
        again = [cell for cell in chosen if cell.name in doubtful[:AGAIN]]
        for name, pair in (_pairs(variant, home, again, lane) if again else {}).items():
            found[name] = in_both(found[name], compare(*pair))
    rows = [
        row
        for name, pair in pairs.items()
        for row in rows_of(pair[0], found[name], slurm=version, variant=variant.name)
    ]
    for name in {cell.head.name for cell in chosen}:
        keep(folder / f"{name}.jsonl", [row for row in rows if row["head"] == name])
    return rows


def results_of(variant: Variant, home: Path, size: Size) -> Path:
    """Return the folder that holds the rows of each head, one file a head."""
    return home / "comparison" / f"{release()[0]}-{variant.name}-{size}"


@contextmanager
def _locked(home: Path, lane: int) -> Iterator[None]:
    """Refuse a second comparison in the same places.

    Raises:
        BlockingIOError: One runs there.
    """
    with (home / "comparison" / f"lock-{lane}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _pairs(variant: Variant, home: Path, chosen: list[Cell], lane: int) -> dict[str, tuple[Record, Record]]:
    """Run cells without RAD, then with it; return both records of each cell, and keep them until the next run."""
    sides = []
    for rad in (False, True):
        side = f"{'with' if rad else 'without'}{lane or ''}"
        with running(variant, new_place(home, side), rad=rad) as target:
            records = run_cells(target, chosen, limit_s=LIMIT_S)
        keep(home / "comparison" / f"{side}.records.jsonl", records)
        sides.append({record["cell"]: record for record in records})
    return {name: (record, sides[1][name]) for name, record in sides[0].items()}


def _is_calm(differences: list[Difference]) -> bool:
    return not any(one.grave or one.only_with for one in differences)


def in_both(first: list[Difference], second: list[Difference]) -> list[Difference]:
    """Return what differed twice in the same way; of what is grave, all that the second run showed of these forms.

    Args:
        first: What differed among all others.
        second: What differed with few next to it.
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
