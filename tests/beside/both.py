"""One variant with RAD and without: the same cells on both, and what differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from beside.catalogue import Cell, Release, cells
from beside.clusters import Variant, new_place, running
from beside.compare import compare
from beside.runs import Record, run_cells
from beside.table import Row, rows_of

from slurm_plugin.core.shell import run
from slurm_plugin.slurm.printed import parse_version

LIMIT_S = 1800.0


def release() -> tuple[str, Release]:
    """Return the version of the Slurm that is installed, as text and as numbers."""
    text = run(["slurmctld", "-V"], timeout_s=10).split()[-1]
    version = parse_version(f"slurm {text}")
    return text, (version[0], version[1])


def both(
    variant: Variant, home: Path, *, long: bool, only: str = "", limit_s: float = LIMIT_S
) -> list[Row]:
    """Run a variant's cells on both clusters, keep the records, and return what was found.

    Args:
        variant: The kind of site.
        home: The checkout's own folder.
        long: Whether all cells are run.
        only: A part of the names of the heads that are run; "" for all.
        limit_s: How long the jobs of one cluster may take.
    """
    version, numbers = release()
    chosen = [cell for cell in cells(numbers, long=long) if only in cell.head.name]
    folder = home / "beside"
    folder.mkdir(exist_ok=True)
    records = {}
    for rad in (False, True):
        name = f"{variant.name}-{'with' if rad else 'without'}"
        found = on_a_cluster(variant, home, chosen, rad=rad, limit_s=limit_s)
        keep(folder / f"{version}-{name}.jsonl", found)
        records[rad] = {record["cell"]: record for record in found}
    rows = judged(records[False], records[True], version, variant)
    keep(folder / f"{version}-{variant.name}.rows.jsonl", rows)
    return rows


def on_a_cluster(
    variant: Variant, home: Path, chosen: list[Cell], *, rad: bool, limit_s: float
) -> list[Record]:
    """Run cells on a cluster of their own.

    Args:
        variant: The kind of site.
        home: The checkout's own folder.
        chosen: The cells.
        rad: Whether RAD is part of the cluster.
        limit_s: How long the jobs may take.
    """
    with running(variant, new_place(home, "with" if rad else "without"), rad=rad) as target:
        return run_cells(target, chosen, limit_s=limit_s)


def judged(
    without: dict[str, Record], beside: dict[str, Record], version: str, variant: Variant
) -> list[Row]:
    """Return one row for each form of each cell.

    Args:
        without: The records without RAD, by cell.
        beside: Those with RAD.
        version: Slurm's.
        variant: The kind of site.
    """
    rows: list[Row] = []
    for name, record in without.items():
        rows += rows_of(record, compare(record, beside[name]), slurm=version, variant=variant.name)
    return rows


def keep(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def kept(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file that `keep` wrote."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
