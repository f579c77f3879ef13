"""Print the estimates and quantiles of the estimator `rad` relative to measured peaks, for `rad simulate`.

    python bench/estimator/estimate_errors.py > slurm_plugin/simulate/traces/estimate_errors.csv

One line for each held-out run that has a torchinfo text; nothing is trained or tuned on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpumemnet.estimators import rad
from gpumemnet.learning.evaluate.heldout import MAIN_FORMAT, ask
from gpumemnet.learning.train.rows import TrainingRow, load_rows
from gpumemnet.units import MIB
from slurm_plugin.core.booking.confidence import SHARES

ROWS = Path(__file__).resolve().parents[2] / "gpumemnet/data/heldout_h200.jsonl.xz"


def main() -> None:
    """Print the table, smallest bound first: estimate, bound, and what each share of jobs stays below."""
    print(",".join(("estimate", "bound", *map(str, SHARES))))
    print("\n".join(lines([row for row in load_rows(ROWS) if row.text_format == MAIN_FORMAT])))


def lines(runs: list[TrainingRow]) -> Iterator[str]:
    """Yield a line of the table for each of these runs, smallest bound first."""
    answers = ask("rad", runs, rad.estimate)
    rows = sorted(
        [
            said / MIB / run.peak_mib
            for said in (answer.upper_bytes, answer.estimate_bytes, *map(answer.quantile, SHARES))
        ]
        for run, answer in zip(answers.rows, answers.answers, strict=True)
    )
    for bound, guess, *shares in rows:
        yield ",".join(f"{ratio:.3f}" for ratio in (guess, bound, *shares))


if __name__ == "__main__":
    main()
