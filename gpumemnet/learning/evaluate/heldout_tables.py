"""Tables of the answers for held-out runs: errors, errors by source, and bookings."""

from __future__ import annotations

import numpy as np

from gpumemnet.learning.evaluate.heldout import Answers
from gpumemnet.learning.evaluate.scores import markdown, percent, score
from gpumemnet.units import MIB

SHARES = (0.8, 0.9, 0.95, 0.99)
"""Quantiles in the table of bookings."""


def table(found: list[Answers]) -> str:
    """Return a table of the scores."""
    rows = []
    for answers in found:
        scores = answers.scores()
        ratio = "-" if scores.upper_over_actual is None else f"{scores.upper_over_actual:.2f}"
        rows.append(
            [
                answers.estimator,
                str(scores.runs),
                percent(scores.median_error),
                percent(scores.p95_error),
                f"{scores.mae_mib:,.0f}",
                percent(scores.underestimates),
                percent(scores.above_upper),
                ratio,
            ]
        )
    header = [
        "estimator", "runs", "median error", "P95 error", "MAE MiB", "underestimates", "above upper", "upper/actual",
    ]  # fmt: skip
    return markdown(header, rows)


def by_source(answers: Answers) -> str:
    """Return one estimator's scores by source library of the models."""
    groups = sorted({row.group.split("/")[1].split(":")[0] for row in answers.rows})
    rows = []
    for group in groups:
        chosen = np.array([f"/{group}:" in row.group for row in answers.rows])
        actual = np.array([row.peak_mib for row in answers.rows])[chosen]
        estimate, upper = np.array(answers.estimate_mib)[chosen], np.array(answers.upper_mib)[chosen]
        scores = score(actual, estimate, upper)
        rows.append(
            [
                group,
                str(scores.runs),
                percent(scores.median_error),
                percent(scores.p95_error),
                percent(scores.above_upper),
            ]
        )
    return markdown([answers.estimator, "runs", "median error", "P95 error", "above upper"], rows)


def bookings(found: list[Answers]) -> str:
    """Return how often each quantile is exceeded, and the ratio of booked to needed memory."""
    rows = []
    for answers in found:
        if not any(answer.quantiles for answer in answers.answers):
            continue
        actual = np.array([row.peak_mib for row in answers.rows])
        cells = [answers.estimator, str(len(actual))]
        for share in SHARES:
            booked = np.array([answer.quantile(share) / MIB for answer in answers.answers])
            cells.append(f"{percent(float((actual > booked).mean()))}, {(booked / actual).mean():.2f}")
        rows.append(cells)
    header = ["above, booked/actual", "runs", *(f"{share:.0%} booked" for share in SHARES)]
    return markdown(header, rows)
