"""Write learned models as plain arrays (see gpumemnet.predictor)."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import nn

from gpumemnet.estimators import features
from gpumemnet.estimators.tree_model import VERSION, Trees
from gpumemnet.learning.train.networks import MlpEnsemble


def trees_of(model: HistGradientBoostingRegressor) -> Trees:
    """Flatten scikit-learn's histogram-boosted trees; rows without missing values get the same results."""
    roots: list[int] = []
    columns: dict[str, list[Any]] = {"feature": [], "threshold": [], "left": [], "right": []}
    for (predictor,) in model._predictors:
        nodes = predictor.nodes
        start = len(columns["feature"])
        roots.append(start)
        leaf = nodes["is_leaf"].astype(bool)
        columns["feature"] += np.where(leaf, -1, nodes["feature_idx"]).tolist()
        columns["threshold"] += np.where(leaf, nodes["value"], nodes["num_threshold"]).tolist()
        columns["left"] += np.where(leaf, 0, nodes["left"] + start).tolist()
        columns["right"] += np.where(leaf, 0, nodes["right"] + start).tolist()
    return Trees(
        baseline=float(np.ravel(model._baseline_prediction)[0]),
        roots=tuple(roots),
        **{name: tuple(values) for name, values in columns.items()},
    )


def layers_of(network: MlpEnsemble) -> list[list[dict[str, Any]]]:
    """Return each member of an MLP ensemble as linear layers, with batch normalization folded in."""
    members = []
    for member in network.members:
        assert isinstance(member, nn.Sequential)
        layers: list[Any] = list(member)
        found = []
        for index in range(0, len(layers), 3):
            weight = layers[index].weight.detach().double().numpy()
            bias = layers[index].bias.detach().double().numpy()
            if index + 1 < len(layers):
                norm = layers[index + 1]
                scale = (norm.weight / (norm.running_var + norm.eps).sqrt()).detach().double().numpy()
                shift = norm.bias.detach().double().numpy() - norm.running_mean.double().numpy() * scale
                weight, bias = weight * scale[:, None], bias * scale + shift
            found.append({"weight": weight.tolist(), "bias": bias.tolist()})
        members.append(found)
    return members


def write(
    path: Path, *, data_sha256: str, constants: dict[str, float], trees: dict[str, Trees], **more: Any
) -> None:
    """Write a weights file.

    Args:
        path: The file.
        data_sha256: Hash of the training rows.
        constants: Numbers by name.
        trees: Forests by name.
        more: Further entries of the file.
    """
    values = {
        "version": VERSION,
        "data_sha256": data_sha256,
        "features": list(features.NAMES),
        "constants": constants,
        "trees": {name: _plain(tree) for name, tree in trees.items()},
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zlib.compress(json.dumps(values, separators=(",", ":")).encode(), 9))


def _plain(trees: Trees) -> dict[str, Any]:
    return {
        name: getattr(trees, name) for name in ("baseline", "roots", "feature", "threshold", "left", "right")
    }
