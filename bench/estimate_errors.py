"""How far our estimates are from the need: estimate and bound over the measured peak, for `rad simulate`.

    python bench/estimate_errors.py > slurm_plugin/admin/simulate/estimate_errors.csv

One line for each held-out run that has a torchinfo text; nothing is trained or tuned on them.
"""

from __future__ import annotations

from pathlib import Path

from gpumemnet.estimators import ours
from gpumemnet.evaluate.heldout import MAIN_FORMAT, ask, held_out

ROWS = Path(__file__).resolve().parents[1] / "gpumemnet/data/heldout_h200.jsonl.xz"


def main() -> None:
    """Print the table, smallest bound first."""
    answers = ask("ours", [row for row in held_out(ROWS) if row.text_format == MAIN_FORMAT], ours.estimate)
    pairs = sorted(
        (upper / row.peak_mib, guess / row.peak_mib)
        for row, guess, upper in zip(answers.rows, answers.estimate_mib, answers.upper_mib, strict=True)
    )
    print("estimate,bound")
    for bound, guess in pairs:
        print(f"{guess:.3f},{bound:.3f}")


if __name__ == "__main__":
    main()
