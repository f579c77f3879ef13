"""The errors from which simulations draw are those of the weights that ship."""

from __future__ import annotations

import sys

import pytest
from paths import CHECKOUT

pytest.importorskip("numpy")

from gpumemnet.learning.evaluate.heldout import MAIN_FORMAT
from gpumemnet.learning.train.rows import load_rows

sys.path.insert(0, str(CHECKOUT / "bench" / "estimator"))
import estimate_errors

TABLE = CHECKOUT / "slurm_plugin" / "simulate" / "traces" / "estimate_errors.csv"
EVERY = 9


def test_simulations_draw_the_errors_of_the_weights_that_ship() -> None:
    """A ninth of the runs; all of them: python bench/estimator/estimate_errors.py."""
    runs = [row for row in load_rows(estimate_errors.ROWS) if row.text_format == MAIN_FORMAT]
    shipped = TABLE.read_text().splitlines()[1:]
    assert len(shipped) == len(runs)
    assert set(estimate_errors.lines(runs[::EVERY])) <= set(shipped), "make the table again"
