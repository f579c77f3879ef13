# ruff: noqa: E402 - what follows needs libraries that only the train extra brings
"""Plain arrays give the same answers as the libraries that trained them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("sklearn")
torch = pytest.importorskip("torch")

from sklearn.ensemble import HistGradientBoostingRegressor

from gpumemnet.errors import ModelFileError
from gpumemnet.estimators import buckets, features, transformer, tree_model
from gpumemnet.estimators.tree_model import Trees
from gpumemnet.learning.train.classifiers import members_of
from gpumemnet.learning.train.export import layers_of, trees_of, write
from gpumemnet.learning.train.networks import Fitting, MlpEnsemble, TransformerClassifier, fit

RANDOM = np.random.RandomState(3)


def test_trees_answer_as_scikit_learn() -> None:
    rows = RANDOM.randn(800, 6)
    target = rows[:, 0] * 2 + np.sin(rows[:, 1] * 3) + rows[:, 2] * rows[:, 3]
    model = HistGradientBoostingRegressor(max_iter=40, loss="absolute_error", random_state=0).fit(
        rows, target
    )
    fresh = RANDOM.randn(300, 6) * 1.5
    plain = trees_of(model)
    rads = [plain.predict(row) for row in fresh.tolist()]
    # A log-ratio error of 1e-9 on a peak of 140 GB is far below 1 MiB.
    assert np.abs(np.array(rads) - model.predict(fresh)).max() < 1e-9


def test_trees_survive_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    width = len(features.NAMES)
    rows = RANDOM.randn(300, width)
    model = HistGradientBoostingRegressor(max_iter=5, random_state=0).fit(rows, rows[:, 0])
    write(tmp_path / "some.json.z", data_sha256="0", constants={"a": 1.5}, trees={"t": trees_of(model)})
    monkeypatch.setattr(tree_model, "WEIGHTS", tmp_path)
    tree_model.load.cache_clear()
    learned = tree_model.load("some")
    assert learned.constants == {"a": 1.5}
    assert learned.trees["t"].predict(rows[0].tolist()) == pytest.approx(
        float(model.predict(rows[:1])[0]), abs=1e-9
    )
    tree_model.load.cache_clear()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "pip install rad-slurm-train"),
        (b"not compressed", "no usable weights"),
        (zlib.compress(b"[1]"), "no usable weights|another version"),
        (zlib.compress(json.dumps({"version": 99}).encode()), "another version"),
        (
            zlib.compress(json.dumps({"version": tree_model.VERSION, "features": ["x"]}).encode()),
            "other features",
        ),
    ],
)
def test_unusable_weights_are_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "some.json.z").write_bytes(content)
    monkeypatch.setattr(tree_model, "WEIGHTS", tmp_path)
    with pytest.raises(ModelFileError, match=says):
        tree_model.load("some")


def trained_on(inputs: tuple[object, ...], make: object, classes: int) -> torch.nn.Module:
    labels = RANDOM.randint(0, classes, len(inputs[0]))  # type: ignore[arg-type]
    return fit(make, inputs, labels, inputs, labels, Fitting(epochs=3, patience=3))  # type: ignore[arg-type]


def test_mlp_ensemble_answers_as_torch() -> None:
    rows = RANDOM.randn(256, 7) * 50
    network = trained_on((rows,), lambda: MlpEnsemble(7, 5), 5)
    assert isinstance(network, MlpEnsemble)
    members = layers_of(network)
    with torch.no_grad():
        expected = network(torch.as_tensor(rows[:40], dtype=torch.float32)).numpy()
    plain = np.array([buckets.mean_logits(members, row) for row in rows[:40].tolist()])
    assert np.abs(plain - expected).max() < 1e-3


def test_transformer_answers_as_torch() -> None:
    series, scalars = RANDOM.rand(64, 12, transformer.COLUMNS), RANDOM.rand(64, 3)
    network = trained_on((series, scalars), lambda: TransformerClassifier(transformer.COLUMNS, 12, 3, 4), 4)
    assert isinstance(network, TransformerClassifier)
    members = members_of(network)
    with torch.no_grad():
        expected = network(
            torch.as_tensor(series[:8], dtype=torch.float32),
            torch.as_tensor(scalars[:8], dtype=torch.float32),
        ).numpy()
    plain = np.array(
        [
            transformer.logits(members, rows, numbers)
            for rows, numbers in zip(series[:8].tolist(), scalars[:8].tolist(), strict=True)
        ]
    )
    assert np.abs(plain - expected).max() < 1e-3


def test_a_tree_of_one_leaf_is_its_answer() -> None:
    tree = Trees(baseline=1.0, roots=(0,), feature=(-1,), threshold=(0.25,), left=(0,), right=(0,))
    assert tree.predict([]) == 1.25
