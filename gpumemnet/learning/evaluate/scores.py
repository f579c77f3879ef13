"""Scores of estimates against measured peaks; the same definitions in every table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Accuracy and safety of one estimator on one set of runs.

    Attributes:
        runs: Number of runs.
        median_error: Median of |estimate - actual| / actual.
        p95_error: 95th percentile of the same.
        mae_mib: Mean of |estimate - actual|.
        underestimates: Share of runs with an estimate below the measured peak.
        above_upper: Share of runs above the bound; None for an estimator without a bound.
        upper_over_actual: Mean of bound / actual; None likewise.
    """

    runs: int
    median_error: float
    p95_error: float
    mae_mib: float
    underestimates: float
    above_upper: float | None = None
    upper_over_actual: float | None = None


def score(
    actual_mib: Sequence[float], estimate_mib: Sequence[float], upper_mib: Sequence[float] | None = None
) -> Scores:
    """Score estimates in MiB.

    Args:
        actual_mib: Measured peaks.
        estimate_mib: Best guesses, in the same order.
        upper_mib: Bounds, in the same order; None if the estimator has none.

    Returns:
        The scores.
    """
    actual, estimate = np.asarray(actual_mib, float), np.asarray(estimate_mib, float)
    error = np.abs(estimate - actual)
    relative = error / actual
    bound = None if upper_mib is None else np.asarray(upper_mib, float)
    return Scores(
        runs=len(actual),
        median_error=float(np.median(relative)),
        p95_error=float(np.quantile(relative, 0.95)),
        mae_mib=float(error.mean()),
        underestimates=float((estimate < actual).mean()),
        above_upper=None if bound is None else float((actual > bound).mean()),
        upper_over_actual=None if bound is None else float((bound / actual).mean()),
    )


def percent(value: float | None) -> str:
    """Return a share as a percentage; a dash for None."""
    return "-" if value is None else f"{100 * value:.1f} %"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table in Markdown, with padded columns so that it is also readable in a terminal.

    Args:
        header: Titles of the columns.
        rows: Cells as text.
    """
    widths = [max(len(str(cell)) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = [
        "| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (header, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(lines)
