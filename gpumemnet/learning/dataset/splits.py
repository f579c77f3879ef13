"""Decide which rows are for training and which for evaluation, from the rows' names only. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpumemnet.learning.dataset.store import Record

TWIN_PARAMS = 0.01
"""A generated model with as many parameters as a held-out one, within this share, ..."""
TWIN_TENSORS = 0.02
"""... and as many tensors, within this share, counts as its near twin."""


def near_twins(rows: Iterable[Record], heldout: Sequence[Record]) -> list[Record]:
    """Return the generated rows whose model is nearly the same as one of the held-out models.

    Args:
        rows: Generated rows.
        heldout: Held-out ones.
    """
    real = {(r["params"], r["param_tensors"]) for r in heldout if r["outcome"] == "ok"}
    return [
        row
        for row in rows
        if row["outcome"] == "ok"
        and any(
            abs(row["params"] - params) <= TWIN_PARAMS * params
            and abs(row["param_tensors"] - tensors) <= TWIN_TENSORS * tensors
            for params, tensors in real
        )
    ]
