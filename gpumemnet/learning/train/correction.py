"""Learn the correction of the analytical model, and the distribution of the remaining error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from gpumemnet.estimators import analytic, conformal, rad
from gpumemnet.gpus import Gpu
from gpumemnet.learning.train.arrays import Floats
from gpumemnet.learning.train.rows import TrainingRow, folds, lineage
from gpumemnet.units import MIB

SEED = 7
Mask = NDArray[np.bool_]
SMOOTH_MIB = 64.0
"""Added to both sides of the ratio: a few MiB do not matter for a small job, which consists mostly of its base."""
UNUSUAL_WEIGHT = 0.2
CORRECTION = {
    "loss": "absolute_error",
    "learning_rate": 0.06,
    "max_iter": 150,
    "max_leaf_nodes": 24,
    "min_samples_leaf": 20,
    "l2_regularization": 1.0,
    "max_features": 0.4,
    "random_state": SEED,
}
FOLDS = 5
SHRINK = 0.6
"""Applied share of the learned correction: on unseen families all of it adds more noise than it removes."""
SHRINK_CLOSE = 0.3
"""The same where the analytical model is closer, for texts of all levels and for transformers: the best of 0, 0.3,
0.45, 0.6, 0.8 and 1 on held-out lineages."""
SHRINK_PRINT = 1.0
"""The same for `print(model)`, which shows neither sizes nor running order: all of it."""
SHARES = {"shrink": SHRINK, "shrink_close": SHRINK_CLOSE, "shrink_print": SHRINK_PRINT}
"""Shares by the names in `rad.share_of_correction`."""
ENOUGH_REAL = 100
"""Number of real rows of a kind that calibrate it alone."""
LEAST_TO_CALIBRATE = 8
"""Rows of a kind below which the quantiles of all rows are used; below ENOUGH_REAL the larger of both."""
REAL_WEIGHT = 3.0
"""Training weight of a real model's row relative to a generated model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowArrays:
    """Rows as arrays.

    Attributes:
        features: Output of `features.vector`.
        modelled_mib: The analytical estimate above the base.
        base_mib: Expected base.
        peak_mib: Measured peak.
        weight: Equal per run, however many texts it has; REAL_WEIGHT times that if its model is real.
        usual: Whether the optimizer processes parameters by default. A summary does not show it; other rows count less
            for the correction and in full for the bound.
        group: Family and style of each row, or the lineage of a real model: related models are in one fold.
        kind: Name from `conformal.kind`.
        scale: Width of the quantiles of its kind for each row (`conformal.scale`).
        real: Whether the model is a published one, not a generated one.
        shrink: Applied share of the learned correction for each row.
        telling: Whether the row is used for training: with an assumed input size the error is arbitrary, and traced
            rows that were not measured are only for calibration.
        measured: Whether it ran on a GPU.
    """

    features: Floats
    modelled_mib: Floats
    base_mib: Floats
    peak_mib: Floats
    weight: Floats
    usual: Mask
    group: list[str]
    kind: list[str]
    scale: Floats
    real: Mask
    shrink: Floats
    telling: Mask
    measured: Mask

    @property
    def target(self) -> Floats:
        """Log of measured over expected, both without base."""
        measured = np.maximum(self.peak_mib - self.base_mib, 0.0)
        return np.asarray(np.log((measured + SMOOTH_MIB) / (self.modelled_mib + SMOOTH_MIB)), float)

    @property
    def correction_weight(self) -> Floats:
        """Weights for relative error: an error counts by its share of the whole peak, base included."""
        share = 1 - self.base_mib / np.maximum(self.peak_mib, self.base_mib + 1)
        return np.asarray(self.weight * share * np.where(self.usual, 1.0, UNUSUAL_WEIGHT), float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The correction.

    Attributes:
        correction: Ensemble for the log ratio of measured to expected.
        quantiles: Logarithms of actual over estimated memory, one for each of `conformal.LEVELS`, by kind.
        held_out: Correction of each row by ensembles that were not trained on its group (a logarithm).
        held_out_widths: Quantiles of each row's kind, found without the rows of its fold; rows x levels.
    """

    correction: HistGradientBoostingRegressor
    quantiles: dict[str, list[float]]
    held_out: Floats
    held_out_widths: Floats


def samples(rows: list[TrainingRow], features: Floats, gpu: Gpu) -> RowArrays:
    """Convert rows to arrays.

    Args:
        rows: Training rows.
        features: One row of numbers for each.
        gpu: GPU of the measurements.
    """
    parts = [analytic.breakdown(row.profile, gpu) for row in rows]
    texts = np.bincount([row.run for row in rows])
    real = np.array([row.group.startswith("real/") for row in rows])
    return RowArrays(
        features=features,
        modelled_mib=np.array([(sum(part.values()) - part["base"]) / MIB for part in parts]),
        base_mib=np.array([part["base"] / MIB for part in parts]),
        peak_mib=np.array([row.peak_mib for row in rows]),
        weight=np.where(real, REAL_WEIGHT, 1.0) / texts[[row.run for row in rows]],
        usual=np.array([row.usual for row in rows]),
        group=[lineage(row.group) for row in rows],
        kind=[conformal.kind(row.profile) for row in rows],
        scale=np.array([conformal.scale(row.profile) for row in rows]),
        real=real,
        shrink=np.array([SHARES[rad.share_of_correction(row.profile)] for row in rows]),
        telling=np.array([row.measured and not row.profile.assumed for row in rows]),
        measured=np.array([row.measured for row in rows]),
    )


def learn(data: RowArrays) -> Correction:
    """Fit the correction; its quantiles are calibrated on groups that it was not trained on.

    Returns:
        The correction.
    """
    held_out = np.zeros(len(data.group))
    for mask in folds(data.group, FOLDS):
        held_out[mask] = data.shrink[mask] * _fit(data, ~mask).predict(data.features[mask])
    error = data.target - held_out
    everything = np.ones(len(data.group), bool)
    widths = np.zeros((len(data.group), len(conformal.LEVELS)))
    for mask in folds(data.group, FOLDS):
        found = calibrated(data, error, ~mask)
        widths[mask] = [
            found.get(kind, found[conformal.ANY])
            for kind, chosen_row in zip(data.kind, mask, strict=True)
            if chosen_row
        ]
    widths *= data.scale[:, None]
    return Correction(
        correction=_fit(data, everything),
        quantiles=calibrated(data, error, everything),
        held_out=held_out,
        held_out_widths=widths,
    )


def calibrated(data: RowArrays, error: Floats, chosen: Mask) -> dict[str, list[float]]:
    """Return the quantiles of the error by kind, and of all rows.

    Real models calibrate a kind if there are enough of them, as they are what users run; generated ones are made to
    differ from each other, and some have properties of no published model (scores materialized in a class that hides
    them). Each lineage has equal weight, however many runs it has: the next job is another model. Nor may runs be
    above a quantile more often than its share: some lineages err only in a few of their runs.
    If traces also calibrate a kind, measured runs alone must not be above its quantiles more often: a GPU has effects
    that no trace shows.

    Args:
        data: The rows.
        error: log actual - log estimate of each row, out of fold.
        chosen: The rows for calibration.
    """
    kinds = np.array(data.kind)
    group = np.array(data.group)

    def found_in(rows: Mask) -> list[float]:
        _, lineage, runs = np.unique(group[rows], return_inverse=True, return_counts=True)
        errors = (error[rows] / data.scale[rows]).tolist()
        by_lineage = conformal.quantiles(errors, (1.0 / runs[lineage]).tolist())
        return [max(pair) for pair in zip(by_lineage, conformal.quantiles(errors), strict=True)]

    everyone = conformal.quantiles(error[chosen].tolist())
    found = {conformal.ANY: everyone}
    for kind in sorted(set(data.kind)):
        rows = chosen & (kinds == kind)
        if (rows & data.real).sum() >= ENOUGH_REAL:
            rows &= data.real
        if rows.sum() < LEAST_TO_CALIBRATE:
            continue
        found[kind] = found_in(rows)
        if (rows & data.measured).sum() >= ENOUGH_REAL:
            found[kind] = [
                max(pair) for pair in zip(found[kind], found_in(rows & data.measured), strict=True)
            ]
        if rows.sum() < ENOUGH_REAL:
            found[kind] = [max(pair) for pair in zip(found[kind], everyone, strict=True)]
    return found


def estimates(data: RowArrays, correction: Floats, width: Floats | float = 0.0) -> Floats:
    """Return MiB from corrections and widths, both logarithms.

    Args:
        data: The rows.
        correction: One per row.
        width: Likewise, or one for all; 0 for the estimate.
    """
    account = data.modelled_mib + SMOOTH_MIB
    return np.asarray(data.base_mib + account * np.exp(correction + width) - SMOOTH_MIB, float)


def _fit(data: RowArrays, mask: Mask) -> HistGradientBoostingRegressor:
    model = HistGradientBoostingRegressor(**CORRECTION)
    mask = mask & data.telling
    model.fit(data.features[mask], data.target[mask], sample_weight=data.correction_weight[mask])
    return model
