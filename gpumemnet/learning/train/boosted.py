"""Train plain gradient boosting on RAD's measurements."""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from gpumemnet.estimators import features
from gpumemnet.estimators.boosted import columns
from gpumemnet.estimators.conformal import conformal_margin
from gpumemnet.estimators.tree_model import Trees
from gpumemnet.learning.train.arrays import Floats
from gpumemnet.learning.train.correction import SEED, RowArrays
from gpumemnet.learning.train.export import trees_of
from gpumemnet.learning.train.rows import folds

SETTINGS = {
    "loss": "absolute_error",
    "learning_rate": 0.06,
    "max_iter": 220,
    "max_leaf_nodes": 24,
    "min_samples_leaf": 20,
    "random_state": SEED,
}


def learn(data: RowArrays) -> tuple[Trees, float]:
    """Fit the logarithm of a run's memory above its base.

    Returns:
        The trees, and the width of the bound (a logarithm), calibrated on unseen groups as for RAD's estimator.
    """
    target = np.log(np.maximum(data.peak_mib - data.base_mib, 1.0))
    allowed = np.zeros_like(data.features)
    allowed[:, columns()] = data.features[:, columns()]  # other columns are constant, so no tree uses them
    held_out = np.zeros(len(target))
    for mask in folds(data.group):
        held_out[mask] = _fit(allowed[~mask], target[~mask], data.weight[~mask]).predict(allowed[mask])
    trees = trees_of(_fit(allowed, target, data.weight))
    assert {features.NAMES[column] for column in trees.feature if column >= 0} <= {
        features.NAMES[column] for column in columns()
    }
    return trees, conformal_margin((target - held_out).tolist())


def _fit(rows: Floats, target: Floats, weight: Floats) -> HistGradientBoostingRegressor:
    model = HistGradientBoostingRegressor(**SETTINGS)
    model.fit(rows, target, sample_weight=weight)
    return model
