"""Nothing that ran without RAD fails with it: public job scripts on the same cluster, with RAD and without.

The short form holds every head and every form at least once. RAD_COMPARISON=middle runs each kind of job with each form
that requests a GPU; RAD_COMPARISON=long each kind with each form, and the other kinds of site too.
`python tests/comparison show` prints the tables of what was run.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import cast

import pytest
from comparison.both import both
from comparison.catalogue import Release, Size, cells, forms, heads
from comparison.clusters import VARIANTS
from comparison.table import Row, reasons, summary

from lab.place import home_of
from slurm_plugin.core.process.run import run

CHECKOUT = Path(__file__).resolve().parents[2]
SIZE = cast(Size, os.environ.get("RAD_COMPARISON", "short"))
LEAST_HEADS, LEAST_FORMS = 120, 26
SAID = re.compile(r"\S+\.(out|err): ")
"""What steps print on a busy machine depends on which waits for which; their status and environment do not."""


@pytest.mark.parametrize("release", [(22, 5), (24, 11), (26, 5)])
def test_every_head_and_every_form_is_run_in_the_short_form(release: Release) -> None:
    chosen = cells(release, size="short")
    known = {head.name for head in heads() if head.runs_on(release)}
    assert len(known) >= LEAST_HEADS
    assert {cell.head.name for cell in chosen} == known
    assert {form.name for cell in chosen for form in cell.forms} == {form.name for form in forms()}
    assert len({cell.name for cell in chosen}) == len(chosen)


@pytest.mark.parametrize("release", [(22, 5), (24, 11), (26, 5)])
def test_the_middle_size_runs_each_form_that_requests_a_gpu_in_each_kind_of_job(release: Release) -> None:
    kinds = [head for head in heads() if head.is_kind and head.runs_on(release)]
    middle = {form.name for form in forms() if form.is_middle}
    assert len(middle) >= LEAST_FORMS
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for cell in cells(release, size="middle"):
        found[cell.head.name, cell.entrance] |= {form.name for form in cell.forms}
    for head in kinds:
        for entrance in ("sbatch", "salloc") if head.is_interactive else ("sbatch",):
            assert found.pop((head.name, entrance)) == {"plain", *middle}
    assert found == {(head.name, "srun"): {"plain"} for head in kinds if head.is_interactive}


@pytest.mark.parametrize(
    "option",
    [
        *(
            "--gres=gpu:1",
            "--gres=gpu:simulated:1",
            "--gpus=1",
            "-G1",
            "--gpus-per-node=1",
            "--gpus-per-task=1",
        ),
        *("--gpus-per-socket=1", "--mem-per-gpu", "--cpus-per-gpu", "--ntasks-per-gpu"),
    ],
)
def test_the_middle_size_has_each_option_that_requests_a_gpu_in_its_four_spellings(option: str) -> None:
    having = [form.text for form in forms() if form.is_middle and option in form.text]
    for spelling in ("--overlap", "--exact", "--exclusive"):
        assert any(spelling in text for text in having)
    assert any(not {"--overlap", "--exact", "--exclusive"} & set(text.split()) for text in having)


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
