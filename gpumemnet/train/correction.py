"""Learn the correction of the analytical model and the width of its bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from gpumemnet.estimators import analytic, conformal
from gpumemnet.estimators.conformal import LEAST_WIDTH, conformal_margin
from gpumemnet.gpus import Gpu
from gpumemnet.train.arrays import Floats
from gpumemnet.train.rows import Row, folds
from gpumemnet.units import MIB

SEED = 7
Mask = NDArray[np.bool_]
SMOOTH_MIB = 64.0
"""Added to both sides of the ratio: a few MiB more or less do not matter for a small job, whose base is most of it."""
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
WIDTH = {
    "loss": "quantile",
    "quantile": 0.98,
    "learning_rate": 0.08,
    "max_iter": 60,
    "max_leaf_nodes": 12,
    "min_samples_leaf": 80,
    "l2_regularization": 3.0,
    "max_features": 0.4,
    "random_state": SEED,
}
FOLDS = 5
SHRINK = 0.6
"""Share of the learned correction that is applied: on unseen families all of it adds more noise than it takes away."""
LEAST_TO_CALIBRATE = 40
"""Rows of one kind below which the margin of all rows bounds it."""
REAL_WEIGHT = 3.0
"""How much more a row of a real model teaches than one of a generated model."""
PLOTTED_SOURCE = "torchinfo"
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Rows as arrays.

    Attributes:
        features: As `features.vector` gives them.
        account_mib: What the analytic account says above the base.
        base_mib: Expected base.
        peak_mib: Measured.
        weight: One run weighs the same however many texts it has, and REAL_WEIGHT times that if its model is real.
        usual: The optimizer walks the parameters as it does by default. A summary's reader cannot know; rows where it
            does not count less for the correction and in full for the bound.
        group: Family and style of each row.
        source: Format of each row's summary.
        kind: As `conformal.kind` names it.
        real: The model is a published one, not a generated one.
        telling: Whether the row can teach anything: where the input size is assumed, the error is any number.
    """

    features: Floats
    account_mib: Floats
    base_mib: Floats
    peak_mib: Floats
    weight: Floats
    usual: Mask
    group: list[str]
    source: list[str]
    kind: list[str]
    real: Mask
    telling: Mask

    @property
    def target(self) -> Floats:
        """Log of measured over expected, both without base."""
        measured = np.maximum(self.peak_mib - self.base_mib, 0.0)
        return np.asarray(np.log((measured + SMOOTH_MIB) / (self.account_mib + SMOOTH_MIB)), float)

    @property
    def correction_weight(self) -> Floats:
        """Weights that serve relative error: an error counts by its share of the whole peak, base included."""
        share = 1 - self.base_mib / np.maximum(self.peak_mib, self.base_mib + 1)
        return np.asarray(self.weight * share * np.where(self.usual, 1.0, UNUSUAL_WEIGHT), float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What was learned, with the answers for groups that were held out while it was.

    Attributes:
        correction: Ensemble for the log ratio of measured to expected.
        width: Ensemble for a high quantile of the correction's error.
        margins: Conformal margin of the bound beyond the width, by kind; "margin" for all together.
        held_out: Correction of each row by ensembles that had not seen its group.
        held_out_width: Width of each row's bound likewise, conformal margin included.
        calibration: Margins that other levels than the bound's need, for PLOTTED_SOURCE, to judge it by.
    """

    correction: HistGradientBoostingRegressor
    width: HistGradientBoostingRegressor
    margins: dict[str, float]
    held_out: Floats
    held_out_width: Floats
    calibration: dict[str, list[float]]


def samples(rows: list[Row], features: Floats, gpu: Gpu) -> Samples:
    """Turn rows into arrays.

    Args:
        rows: Training rows.
        features: One row of numbers for each.
        gpu: Where they were measured.
    """
    parts = [analytic.breakdown(row.profile, gpu) for row in rows]
    texts = np.bincount([row.run for row in rows])
    real = np.array([row.group.startswith("real/") for row in rows])
    return Samples(
        features=features,
        account_mib=np.array([(sum(part.values()) - part["base"]) / MIB for part in parts]),
        base_mib=np.array([part["base"] / MIB for part in parts]),
        peak_mib=np.array([row.peak_mib for row in rows]),
        weight=np.where(real, REAL_WEIGHT, 1.0) / texts[[row.run for row in rows]],
        usual=np.array([row.usual for row in rows]),
        group=[row.group for row in rows],
        source=[row.profile.source for row in rows],
        kind=[conformal.kind(row.profile) for row in rows],
        real=real,
        telling=np.array([not row.profile.assumed for row in rows]),
    )


def learn(data: Samples) -> Correction:
    """Fit both ensembles; the bound is calibrated on groups that the correction had not seen.

    Args:
        data: Training rows.

    Returns:
        What was learned.
    """
    everything = np.ones(len(data.group), bool)
    held_out, width = np.zeros(len(data.group)), np.zeros(len(data.group))
    for mask in folds(data.group, FOLDS):
        held_out[mask] = SHRINK * _fit(CORRECTION, data, data.target, ~mask).predict(data.features[mask])
    error = data.target - held_out
    for mask in folds(data.group, FOLDS):
        width[mask] = _fit(WIDTH, data, error, ~mask).predict(data.features[mask])
    width = np.maximum(width, 0.0)
    excess = error - width
    margins = _margins(data, excess)
    margin = np.array([margins.get(f"margin_{kind}", margins["margin"]) for kind in data.kind])
    plotted = np.array(data.kind) == PLOTTED_SOURCE
    return Correction(
        correction=_fit(CORRECTION, data, data.target, everything),
        width=_fit(WIDTH, data, error, everything),
        margins=margins,
        held_out=held_out,
        calibration={
            "levels": list(LEVELS),
            "margins": [conformal_margin(excess[plotted].tolist(), level) for level in LEVELS],
        },
        held_out_width=np.maximum(width + margin, LEAST_WIDTH),
    )


def _margins(data: Samples, excess: Floats) -> dict[str, float]:
    """Return the conformal margin of each kind by "margin_" and its name, and of all rows by "margin"."""
    margins = {"margin": conformal_margin(excess.tolist())}
    kinds = np.array(data.kind)
    for kind in sorted(set(data.kind)):
        chosen = kinds == kind
        if chosen.sum() >= LEAST_TO_CALIBRATE:
            margins[f"margin_{kind}"] = conformal_margin(excess[chosen].tolist())
    return margins


def estimates(data: Samples, correction: Floats, width: Floats) -> tuple[Floats, Floats]:
    """Return estimate and bound in MiB from corrections and bound widths (both logarithms).

    Args:
        data: The rows.
        correction: Logarithms, one for each row.
        width: Likewise.
    """
    account = data.account_mib + SMOOTH_MIB
    best = data.base_mib + account * np.exp(correction) - SMOOTH_MIB
    upper = data.base_mib + account * np.exp(correction + width) - SMOOTH_MIB
    return best, upper


def _fit(
    settings: dict[str, object], data: Samples, target: Floats, mask: Mask
) -> HistGradientBoostingRegressor:
    model = HistGradientBoostingRegressor(**settings)
    weight = data.weight if settings is WIDTH else data.correction_weight
    mask = mask & data.telling
    model.fit(data.features[mask], target[mask], sample_weight=weight[mask])
    return model
