"""Compare the analytical model with measured runs, by model name.

    python bench/estimator/account_by_name.py --texts .rad/texts.jsonl --kind torchinfo

Printed are the worst names: the account over the measured peak, less one, as the median over the name's runs. Then, for
each share of a correction that had not seen the lineage, the median, the 95th percentile and the mean of the error.
Needs the extra `train`; only training rows are read.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from gpumemnet.learning.dataset.store import TRAINING_ROWS
from gpumemnet.learning.train import correction
from gpumemnet.learning.train.rows import GPU, TrainingRow, load_rows, matrix
from gpumemnet.names import Family

SHARES = (0.0, 0.3, 0.45, 0.6, 0.8, 1.0)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=Path, default=Path(".rad/texts.jsonl"))
    parser.add_argument("--kind", default="torchinfo", help="kind of text, as the calibration calls them")
    parser.add_argument("--worst", type=int, default=30, help="how many names")
    options = parser.parse_args()
    report(load_rows(TRAINING_ROWS, options.texts, stored_only=True), options.kind, options.worst)


def report(rows: list[TrainingRow], kind: str, worst: int) -> None:
    """Print the names that the account misses most, then what each share of the correction makes of it."""
    samples = correction.samples(rows, matrix(rows), GPU)
    chosen = np.array(samples.kind) == kind
    chosen &= samples.real
    peak = samples.peak_mib
    account = correction.estimates(samples, np.zeros(len(rows)))
    names: dict[str, list[float]] = defaultdict(list)
    for at in np.flatnonzero(chosen):
        names[rows[at].group].append(float(account[at] / peak[at] - 1))
    for name, errors in sorted(names.items(), key=lambda each: -abs(np.median(each[1])))[:worst]:
        print(f"{name}: {100 * np.median(errors):+.0f} % ({len(errors)} texts)")
    learned = correction.learn(samples).held_out / samples.shrink
    tokens = np.array([row.profile.family is Family.TRANSFORMER for row in rows])
    for label, group in (("transformers", tokens), ("others", ~tokens)):
        mask = chosen & group
        print(f"{kind}, {label}, {mask.sum()} texts: share of the correction, median, P95 and mean error")
        for share in SHARES:
            error = 100 * np.abs(correction.estimates(samples, share * learned) - peak)[mask] / peak[mask]
            p95 = np.quantile(error, 0.95)
            print(f"  {share:4.2f}  {np.median(error):5.2f} %  {p95:5.1f} %  {error.mean():5.2f} %")


if __name__ == "__main__":
    main()
