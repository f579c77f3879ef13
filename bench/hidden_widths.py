"""How far texts that hide levels are off by the share of memory that is hidden, and what they book, out of fold.

    python bench/hidden_widths.py --texts .rad/texts.jsonl

For each share of the reserved memory that hidden layers hold, real models and traced families: the median error, how
often the 95 % and the 99 % quantile are exceeded, and booked over actual, with one width for all such texts and with
one that follows the share (`conformal.scale`). Needs the extra `train`; only training rows are read.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from gpumemnet.estimators import conformal
from gpumemnet.learning.dataset.store import TRACED_ROWS, TRAINING_ROWS
from gpumemnet.learning.train import correction
from gpumemnet.learning.train.correction import Mask
from gpumemnet.learning.train.rows import GPU, Row, load_rows, matrix, traced_rows

KIND = "torchinfo_hidden"
EDGES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7, 9.0)
LEVELS = (0.95, 0.99)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=Path, default=Path(".rad/texts.jsonl"))
    options = parser.parse_args()
    rows = load_rows(TRAINING_ROWS, options.texts, stored_only=True, default_depth=True)
    report([*rows, *traced_rows(TRACED_ROWS, first_run=max(row.run for row in rows) + 1)])


def report(rows: list[Row]) -> None:
    """Print a line for each share of the memory that hidden layers hold."""
    samples = correction.samples(rows, matrix(rows), GPU)
    learned = correction.learn(samples)
    alike = correction.learn(replace(samples, scale=np.ones(len(rows))))
    best = correction.estimates(samples, learned.held_out)
    error = np.abs(best / samples.peak_mib - 1)
    share = np.array([conformal.hidden_share(row.profile) for row in rows])
    known = np.array([not row.profile.unknown for row in rows])
    chosen = samples.real & known & np.array([kind == KIND for kind in samples.kind])
    print("hidden, texts, lineages, median error; above 95 %, 99 % (booked/actual): one width, then by share")
    for low, high in pairwise(EDGES):
        band = chosen & (share > low) & (share <= high)
        lineages = len({samples.group[at] for at in np.flatnonzero(band)})
        said = [
            f"{100 * above:.1f} % ({ratio:.2f})"
            for each in (alike, learned)
            for above, ratio in _booked(samples, each, band)
        ]
        print(
            f"{low:.2f} to {min(high, 1):.2f}: {band.sum()}, {lineages}, {100 * np.median(error[band]):.1f} %; "
            + ", ".join(said)
        )


def _booked(
    samples: correction.Samples, learned: correction.Correction, band: Mask
) -> list[tuple[float, float]]:
    """Return how often each of LEVELS is exceeded, and booked over actual."""
    found = []
    for level in LEVELS:
        width = learned.held_out_widths[:, conformal.LEVELS.index(level)]
        booked = correction.estimates(samples, learned.held_out, width)[band]
        peak = samples.peak_mib[band]
        found.append((float((peak > booked).mean()), float((booked / peak).mean())))
    return found


if __name__ == "__main__":
    main()
