"""Train the thesis' two classifiers on RAD's measurements and write them as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from gpumemnet.estimators import buckets
from gpumemnet.learning.train.arrays import Floats
from gpumemnet.learning.train.export import layers_of
from gpumemnet.learning.train.networks import ENCODERS, Fitting, Ints, MlpEnsemble, TransformerClassifier, fit
from gpumemnet.learning.train.rows import TrainingRow
from gpumemnet.units import GIB, MIB

VALIDATION_SHARE = 0.2
MLP_FITTING = Fitting(epochs=200, patience=30, seed=42)
TRANSFORMER_FITTING = Fitting(epochs=25, patience=8, seed=42)
"""The Transformer takes seconds per epoch on two cores; its validation loss changes little after the first ten."""


def mlp_ensembles(rows: list[TrainingRow]) -> dict[str, Any]:
    """Train one MLP ensemble per family.

    Returns:
        By name of the classifier: its members, ready for JSON.
    """
    found = {}
    for name, chosen, classes, (train, stop) in _families(rows):
        numbers = np.array([buckets.scalars(row.profile) for row in chosen])
        count = int(classes.max()) + 1
        network = fit(
            lambda numbers=numbers, count=count: MlpEnsemble(numbers.shape[1], count),  # type: ignore[misc]
            (numbers[train],),
            classes[train],
            (numbers[stop],),
            classes[stop],
            MLP_FITTING,
        )
        assert isinstance(network, MlpEnsemble)
        found[name] = layers_of(network)
    return found


def transformers(rows: list[TrainingRow], series: Floats) -> dict[str, Any]:
    """Train one Transformer classifier per family.

    Args:
        rows: Measured runs.
        series: The series of layers of each (rows, length, columns).

    Returns:
        By name of the classifier: its members, ready for JSON.
    """
    position = {id(row): index for index, row in enumerate(rows)}
    found = {}
    for name, chosen, classes, (train, stop) in _families(rows):
        numbers = np.array([buckets.scalars(row.profile) for row in chosen])
        layers = series[[position[id(row)] for row in chosen]]
        count = int(classes.max()) + 1
        shape = (layers.shape[2], layers.shape[1], numbers.shape[1], count)
        network = fit(
            lambda shape=shape: TransformerClassifier(*shape),  # type: ignore[misc]
            (layers[train], numbers[train]),
            classes[train],
            (layers[stop], numbers[stop]),
            classes[stop],
            TRANSFORMER_FITTING,
        )
        assert isinstance(network, TransformerClassifier)
        found[name] = members_of(network)
    return found


def members_of(network: TransformerClassifier) -> list[dict[str, Any]]:
    """Return a Transformer classifier as plain arrays (see gpumemnet.estimators.transformer)."""
    members = []
    for index, (width, _, _) in enumerate(ENCODERS):
        embedding, encoder = network.embeddings[index], network.encoders[index]
        head = network.heads[index]
        assert isinstance(embedding, nn.Sequential)
        assert isinstance(encoder, nn.TransformerEncoder)
        assert isinstance(head, MlpEnsemble)
        members.append(
            {
                "embedding": [_embedding(embedding[0], embedding[1]), _embedding(embedding[3], embedding[4])],
                "positions": _plain(network.get_buffer(f"positions_{index}")),
                "layers": [_encoder_layer(layer, width) for layer in encoder.layers],
                "head": layers_of(head),
            }
        )
    return members


def _embedding(linear: nn.Module, norm: nn.Module) -> dict[str, Any]:
    assert isinstance(linear, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_var is not None
    assert norm.running_mean is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    return {
        "linear": _linear(linear.weight, linear.bias),
        "scale": _plain(scale),
        "shift": _plain(norm.bias - norm.running_mean * scale),
    }


def _encoder_layer(layer: Any, width: int) -> dict[str, Any]:
    attention = layer.self_attn
    parts = {
        name: _linear(
            attention.in_proj_weight[place * width : (place + 1) * width],
            attention.in_proj_bias[place * width : (place + 1) * width],
        )
        for place, name in enumerate(("query", "key", "value"))
    }
    parts["out"] = _linear(attention.out_proj.weight, attention.out_proj.bias)
    for name in ("linear1", "linear2"):
        parts[name] = _linear(getattr(layer, name).weight, getattr(layer, name).bias)
    for name in ("norm1", "norm2"):
        parts[name] = _linear(getattr(layer, name).weight, getattr(layer, name).bias)
    return parts


def _linear(weight: torch.Tensor, bias: torch.Tensor) -> dict[str, Any]:
    return {"weight": _plain(weight), "bias": _plain(bias)}


def _plain(tensor: torch.Tensor) -> Any:
    return tensor.detach().double().tolist()


def _families(rows: list[TrainingRow]) -> Iterator[tuple[str, list[TrainingRow], Ints, tuple[Ints, Ints]]]:
    """Yield each classifier's name, rows, classes, and the rows for training and for stopping."""
    for name in ("mlp", "cnn", "transformer", "other"):
        chosen = [row for row in rows if name in ("other", buckets.network_name(row.profile))]
        width_mib = buckets.width_gib(name) * GIB / MIB
        classes = np.array([int(np.ceil(row.peak_mib / width_mib)) - 1 for row in chosen])
        order = np.random.RandomState(42).permutation(sorted({row.run for row in chosen}))
        stopping = set(order[: int(len(order) * VALIDATION_SHARE)].tolist())
        stop = np.array([index for index, row in enumerate(chosen) if row.run in stopping])
        train = np.array([index for index, row in enumerate(chosen) if row.run not in stopping])
        yield name, chosen, classes, (train, stop)
