"""Evaluate on GPUMemNet's data: published results, its estimators reproduced, plain boosting, and RAD's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.model_selection import train_test_split
from torch import nn

from gpumemnet.learning.evaluate import peer_data
from gpumemnet.learning.evaluate.peer_features import model_features, paper_features, paper_sequences
from gpumemnet.learning.evaluate.scores import markdown
from gpumemnet.learning.train.arrays import Floats
from gpumemnet.learning.train.networks import Fitting, Ints, MlpEnsemble, TransformerClassifier, fit, predict

SEED = 42
CNN_EDGES_MIB = np.array([8000.0, 16000, 24000, 32000, 40000])
OOM_CLASS, OOM_MIB = 5, 42_000.0
"""As in the thesis: a run out of memory counts as 42,000 MiB, in a separate class above 40,000."""
CNN_BASE_MIB, MLP_BASE_MIB = 1690.0, 1440.0
"""nvidia-smi's value on that machine before the first tensor: the smallest labels less what their tensors reserve."""
PAPER_MIX = np.array([142, 90, 47, 53, 52, 280])
"""Runs of each class in the thesis' test set; the snapshot has fewer large ones."""
CNN_SPLITS = 10
NETWORK_SPLITS = {"mlp": 3, "transformer": 1}
"""Number of splits for the thesis' networks, which train for minutes; enough to show their level."""
NETWORK_FITTING = Fitting(epochs=120, patience=30, seed=SEED)
Split = tuple[Ints, Ints, Ints]


def tables(folder: Path, *, networks: bool = True) -> str:
    """Return accuracy on the MLP set and on the CNN snapshot.

    Args:
        folder: Holds GPUMemNet's files.
        networks: False skips the thesis' two networks, which train for minutes.

    Returns:
        Two tables in Markdown.
    """
    return f"{mlp_table(folder, networks=networks)}\n\n{cnn_table(folder, networks=networks)}"


def mlp_split(rows: int) -> Split:
    """Split like the thesis' notebooks: seed 42, 70 % to train, 22 % to stop, 10.2 % to test (2100/594/306)."""
    train, rest = train_test_split(np.arange(rows), test_size=0.3, random_state=SEED)
    test, stop = train_test_split(rest, test_size=0.66, random_state=SEED)
    return train, stop, test


def cnn_splits(rows: int) -> Iterator[Split]:
    """Yield ten random 70/20/10 splits."""
    for seed in range(CNN_SPLITS):
        order = np.random.RandomState(seed).permutation(rows)
        tenth = rows // 10
        yield order[3 * tenth :], order[tenth : 3 * tenth], order[:tenth]


def mlp_table(folder: Path, *, networks: bool) -> str:
    """Score all estimators on the MLP set.

    Args:
        folder: Their data.
        networks: Whether their networks are trained and scored, too, which takes long.
    """
    runs = peer_data.read_mlp(folder)
    peaks = np.array([run.peak_mib for run in runs])
    scalars, sequences = paper_features(runs), paper_sequences(runs)
    split = train, _, test = mlp_split(len(runs))
    rows = [["published: MLP ensemble", ".9542", ".9706"], ["published: Transformer", ".9673", ".9804"]]
    results: dict[str, list[float]] = {}
    own = _own_mlp(runs, peaks, train, test)
    for width in (1000, 2000):
        classes = (np.ceil(peaks / width).astype(int) - 1).clip(0)
        right = classes[test]
        results.setdefault("majority class", []).append(
            (right == np.bincount(classes[train]).argmax()).mean()
        )
        if networks:
            guess = _network("mlp", scalars, sequences, classes, split)
            results.setdefault("MLP ensemble, reproduced", []).append((guess == right).mean())
            guess = _network("transformer", scalars, sequences, classes, split)
            results.setdefault("Transformer, reproduced", []).append((guess == right).mean())
        boosted = HistGradientBoostingClassifier(random_state=0).fit(scalars[train], classes[train])
        results.setdefault("boosted classifier, its features", []).append(
            (boosted.predict(scalars[test]) == right).mean()
        )
        regressed = HistGradientBoostingRegressor(loss="absolute_error", random_state=0).fit(
            scalars[train], peaks[train]
        )
        guess = np.ceil(regressed.predict(scalars[test]) / width) - 1
        results.setdefault("boosted regression, its features", []).append((guess == right).mean())
        results.setdefault("RAD: analytical + residual", []).append(
            (np.ceil(own / width) - 1 == right).mean()
        )
    rows += [[name, *(_accuracy(value) for value in values)] for name, values in results.items()]
    title = f"MLP set, test {len(test)} of {len(runs)} runs; RAD: MAE {np.abs(own - peaks[test]).mean():.1f} MiB\n\n"
    return title + markdown(["MLP set, accuracy", "1,000 MiB ranges", "2,000 MiB ranges"], rows)


def cnn_table(folder: Path, *, networks: bool) -> str:
    """Score all estimators on the CNN snapshot, all seven architectures.

    Args:
        folder: Their data.
        networks: Whether their networks are trained and scored, too, which takes long.
    """
    runs = peer_data.read_cnn(folder)
    peaks = np.array([run.peak_mib for run in runs])
    full = np.array([run.out_of_memory for run in runs])
    classes = np.where(full, OOM_CLASS, np.digitize(np.minimum(peaks, 39_999), CNN_EDGES_MIB))
    scalars, sequences = paper_features(runs), paper_sequences(runs)
    account = model_features(runs)
    scored: dict[str, list[tuple[Ints, Ints]]] = {}
    for number, split in enumerate(cnn_splits(len(runs))):
        train, _, test = split

        def note(name: str, guess: Ints, right: Ints = classes[test]) -> None:
            scored.setdefault(name, []).append((guess, right))

        note("majority class", np.full(len(test), np.bincount(classes[train]).argmax()))
        if networks and number < NETWORK_SPLITS["mlp"]:
            note("MLP ensemble, reproduced", _network("mlp", scalars, sequences, classes, split))
        if networks and number < NETWORK_SPLITS["transformer"]:
            note("Transformer, reproduced", _network("transformer", scalars, sequences, classes, split))
        boosted = HistGradientBoostingClassifier(random_state=0).fit(scalars[train], classes[train])
        note("boosted classifier, its features", boosted.predict(scalars[test]))
        note("RAD: analytical + residual", own_cnn(account, peaks, full, train, test))
    rows = [
        ["published: MLP ensemble (its 4,561 rows of 5 architectures)", ".8825", "-", "-", "-", "-"],
        ["published: Transformer (the same)", ".8449", "-", "-", "-", "-"],
    ]
    rows += [
        [name, *map(_accuracy, _cnn_accuracies(pairs)), str(len(pairs))] for name, pairs in scored.items()
    ]
    header = [
        "CNN snapshot, 8,000 MiB ranges",
        "all",
        "fitting",
        "all, its mix",
        "fitting, its mix",
        "splits",
    ]
    return markdown(header, rows)


def _cnn_accuracies(pairs: list[tuple[Ints, Ints]]) -> tuple[float, float, float, float]:
    """Return accuracy on all runs and on those that fit in memory, with snapshot frequencies and the paper's mix."""
    guess, right = (np.concatenate(part) for part in zip(*pairs, strict=True))
    hit, fits = guess == right, right != OOM_CLASS
    recall = np.array([hit[right == number].mean() for number in range(OOM_CLASS + 1)])
    mix, fitting = PAPER_MIX / PAPER_MIX.sum(), PAPER_MIX[:OOM_CLASS] / PAPER_MIX[:OOM_CLASS].sum()
    return (
        float(hit.mean()),
        float(hit[fits].mean()),
        float(recall @ mix),
        float(recall[:OOM_CLASS] @ fitting),
    )


def own_cnn(
    account: tuple[list[str], Floats], peaks: Floats, full: NDArray[np.bool_], train: Ints, test: Ints
) -> Ints:
    """Predict classes from the analytical estimate and the learned correction.

    A run out of memory only shows that it needs more than the GPU: its target is that limit, or the analytical estimate
    if that is more. Whether a run fits is learned separately: near the limit the allocator frees cached memory, so that
    reserved memory no longer equals the need.

    Args:
        account: Names of the features and their values, (runs, features).
        peaks: Measured peaks in MiB, (runs,).
        full: Whether each run ran out of memory, (runs,).
        train: Indices of the training runs.
        test: Indices of the runs to predict.
    """
    names, features = account
    logs = _logs(names, features)
    expected = features[:, names.index("peak_mixed")]
    needed = np.where(full, np.maximum(OOM_MIB - CNN_BASE_MIB, expected), peaks - CNN_BASE_MIB)
    target = np.log(needed.clip(1) + 40) - np.log(expected + 40)
    residual = _residual(logs[train], target[train], logs[test])
    estimate = np.exp(residual) * (expected[test] + 40) - 40 + CNN_BASE_MIB
    fits = ExtraTreesClassifier(300, min_samples_leaf=2, max_features=0.5, random_state=0, n_jobs=2)
    overflows = fits.fit(logs[train], full[train]).predict_proba(logs[test])[:, 1] > 0.5
    return np.where(overflows, OOM_CLASS, np.digitize(np.minimum(estimate, 39_999), CNN_EDGES_MIB))


def _own_mlp(runs: list[peer_data.PeerRun], peaks: Floats, train: Ints, test: Ints) -> Floats:
    names, features = model_features(runs)
    expected = features[:, names.index("peak_mixed")] + MLP_BASE_MIB
    logs = _logs(names, features)
    return expected[test] + _residual(logs[train], peaks[train] - expected[train], logs[test])


def _residual(train: Floats, target: Floats, test: Floats) -> Floats:
    """Learn a residual with two different ensembles and average them."""
    guesses = [
        HistGradientBoostingRegressor(
            loss="absolute_error",
            max_iter=300,
            learning_rate=0.05,
            max_leaf_nodes=15,
            min_samples_leaf=8,
            max_features=0.5,
            random_state=seed,
        )
        .fit(train, target)
        .predict(test)
        for seed in range(3)
    ]
    forest = ExtraTreesRegressor(300, min_samples_leaf=2, max_features=0.5, random_state=0, n_jobs=2)
    return np.asarray((np.mean(guesses, 0) + forest.fit(train, target).predict(test)) / 2, float)


def _logs(names: list[str], features: Floats) -> Floats:
    scaled: Floats = features.copy()
    for column, name in enumerate(names):
        if name.startswith(("peak_", "gpu_")) or name in (
            "allocated",
            "largest",
            "params",
            "activations",
            "work",
        ):
            scaled[:, column] = np.log1p(scaled[:, column])
    return scaled


def _network(name: str, scalars: Floats, sequences: Floats, labels: Ints, split: Split) -> Ints:
    train, stop, test = split
    classes = int(labels.max()) + 1
    inputs = (scalars,) if name == "mlp" else (sequences, scalars)

    def make() -> nn.Module:
        if name == "mlp":
            return MlpEnsemble(scalars.shape[1], classes)
        return TransformerClassifier(sequences.shape[2], sequences.shape[1], scalars.shape[1], classes)

    network = fit(
        make,
        tuple(part[train] for part in inputs),
        labels[train],
        tuple(part[stop] for part in inputs),
        labels[stop],
        NETWORK_FITTING,
    )
    return predict(network, *(part[test] for part in inputs))


def _accuracy(value: float) -> str:
    return f"{value:.4f}".removeprefix("0")
