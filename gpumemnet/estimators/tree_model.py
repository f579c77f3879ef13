"""Evaluate learned models from plain arrays: no numpy, torch or scikit-learn.

A weights file is JSON, compressed with zlib. It holds the names of the features, boosted trees as flat arrays, and a
few constants. `gpumemnet.learning.train` writes it; the parity test shows that both sides give the same answers.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from gpumemnet.errors import ModelFileError
from gpumemnet.estimators import features

WEIGHTS = Path(__file__).resolve().parents[1] / "weights"
VERSION = 1


class Trees(NamedTuple):
    """Boosted regression trees.

    Node i tests row[feature[i]] <= threshold[i]; true leads to left[i], false to right[i]. A leaf has feature -1 and
    its value in threshold[i].

    Attributes:
        baseline: Added to the sum of the trees' values.
        roots: First node of each tree.
        feature: Column to test, or -1.
        threshold: Value compared with, or the answer of a leaf.
        left: Next node for "yes".
        right: Next node for "no".
    """

    baseline: float
    roots: tuple[int, ...]
    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]

    def predict(self, row: Sequence[float]) -> float:
        """Return the sum of all trees for one row of features."""
        total = self.baseline
        feature, threshold, left, right = self.feature, self.threshold, self.left, self.right
        for node in self.roots:
            column = feature[node]
            while column >= 0:
                node = left[node] if row[column] <= threshold[node] else right[node]
                column = feature[node]
            total += threshold[node]
        return total

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Trees:
        """Build the trees from a weights file's object."""
        return cls(
            baseline=float(values["baseline"]),
            **{name: tuple(values[name]) for name in ("roots", "feature", "threshold", "left", "right")},
        )


class LearnedModel(NamedTuple):
    """Content of a weights file.

    Attributes:
        data_sha256: Hash of the rows it was trained on.
        constants: Numbers that the estimator's formula needs, by name.
        trees: Boosted ensembles by what they answer.
        quantiles: Logarithms by which jobs exceed their estimate, by kind (`conformal.LEVELS`); empty where none are.
    """

    data_sha256: str
    constants: dict[str, float]
    trees: dict[str, Trees]
    quantiles: dict[str, tuple[float, ...]]


@lru_cache(maxsize=8)
def load(name: str) -> LearnedModel:
    """Read the weights of an estimator; later calls return the same object.

    Args:
        name: File name in `weights/`, without suffix.

    Returns:
        The weights.

    Raises:
        ModelFileError: The file is missing, damaged, or was trained on other features than this version's.
    """
    values = read(name)
    if tuple(values.get("features", ())) != features.NAMES:
        raise ModelFileError(
            f"{_path(name)}: trained on other features; run `python -m gpumemnet.learning.train`"
        )
    return LearnedModel(
        data_sha256=values["data_sha256"],
        constants=dict(values["constants"]),
        trees={key: Trees.from_json(tree) for key, tree in values["trees"].items()},
        quantiles={key: tuple(found) for key, found in values.get("quantiles", {}).items()},
    )


def read(name: str) -> dict[str, Any]:
    """Read the raw content of a weights file.

    Raises:
        ModelFileError: It is missing, damaged or of another version.
    """
    path = _path(name)
    if not path.exists():
        raise ModelFileError(
            f"{path}: not installed; the weights of {name} come with: pip install rad-slurm-train"
        )
    try:
        values: dict[str, Any] = json.loads(zlib.decompress(path.read_bytes()))
    except (OSError, ValueError, zlib.error) as exc:
        raise ModelFileError(
            f"{path}: no usable weights ({exc}); run `python -m gpumemnet.learning.train`"
        ) from exc
    if not isinstance(values, dict) or values.get("version") != VERSION:
        raise ModelFileError(f"{path}: of another version; run `python -m gpumemnet.learning.train`")
    return values


def _path(name: str) -> Path:
    return WEIGHTS / f"{name}.json.z"
