"""Nothing that ran without RAD fails with it: public job scripts on the same cluster, with RAD and without.

The short form holds every head and every form at least once; RAD_BESIDE=middle runs each kind of job with each
form that asks for a GPU, RAD_BESIDE=long with each form, and the other kinds of site too. `python tests/beside show` prints the tables of what was run.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import cast

import pytest
from beside.both import both
from beside.catalogue import Release, Size, cells, forms, heads
from beside.clusters import VARIANTS
from beside.table import Row, reasons, summary

from lab.place import home_of
from slurm_plugin.core.process.run import run

CHECKOUT = Path(__file__).resolve().parents[2]
SIZE = cast(Size, os.environ.get("RAD_BESIDE", "short"))
LEAST_HEADS = 120
SAID = re.compile(r"\S+\.(out|err): ")
"""What steps print on a busy machine hangs on who waits for whom; their status and environment do not."""


@pytest.mark.parametrize("release", [(22, 5), (24, 11), (26, 5)])
def test_every_head_and_every_form_is_run_in_the_short_form(release: Release) -> None:
    chosen = cells(release, size="short")
    known = {head.name for head in heads() if head.runs_on(release)}
    assert len(known) >= LEAST_HEADS
    assert {cell.head.name for cell in chosen} == known
    assert {form.name for cell in chosen for form in cell.forms} == {form.name for form in forms()}
    assert len({cell.name for cell in chosen}) == len(chosen)


@pytest.mark.parametrize("text", [form.text for form in forms()])
def test_every_form_is_shell(text: str) -> None:
    assert run(["bash", "-n", "-c", text], timeout_s=10) == ""


@pytest.mark.cluster
@pytest.mark.parametrize("name", VARIANTS if SIZE == "long" else ["rad"])
def test_what_runs_without_rad_runs_with_it(name: str) -> None:
    home, _ = home_of(CHECKOUT)
    rows = both(VARIANTS[name], home, size=SIZE)
    print(summary(rows))
    assert not _of(rows, "fails"), reasons(rows, "fails")
    differs = [row for row in _of(rows, "differs") if not all(map(SAID.match, row["why"]))]
    assert not differs, reasons(differs, "differs")


def _of(rows: list[Row], result: str) -> list[Row]:
    return [row for row in rows if row["result"] == result]
