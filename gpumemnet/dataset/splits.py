"""Which rows may train and which may judge: pure, from the names of the rows alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from gpumemnet.dataset.store import Record

FOLDS = 5
TWIN_PARAMS = 0.01
"""A generated model with as many parameters as a held-out one, within this share ..."""
TWIN_TENSORS = 0.02
"""... in as many tensors, within this share, counts as its near twin."""


def _share(text: str) -> float:
    """Return a number in [0, 1) that depends on the text alone, the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def model_fold(row: Record) -> int:
    """Return the fold of the row's model: all rows of one random model (variants, batch sizes) are in the same one."""
    return int(FOLDS * _share(f"gpumemnet model {row['seed']} {row['index']}"))


def group_folds(rows: Iterable[Record]) -> dict[tuple[str, str], int]:
    """Return the fold of each (family, style), so that a fold holds only kinds of models that the others lack.

    Groups go from the largest to the smallest into the fold that holds the fewest rows so far.
    """
    sizes: dict[tuple[str, str], int] = {}
    for row in rows:
        group = (row["family"], row["style"])
        sizes[group] = sizes.get(group, 0) + 1
    filled = [0] * FOLDS
    folds: dict[tuple[str, str], int] = {}
    for group in sorted(sizes, key=lambda g: (-sizes[g], g)):
        folds[group] = filled.index(min(filled))
        filled[folds[group]] += sizes[group]
    return folds


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
