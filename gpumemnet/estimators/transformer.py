"""Baseline: the thesis' Transformer classifier (section 5.4.4), from plain arrays.

It reads the series of layers, which a profile does not hold, so it also needs the parsed summary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpumemnet.estimate import Estimate
from gpumemnet.estimators import tree_model
from gpumemnet.estimators.buckets import affine, from_class, likeliest, mean_logits, network_name, scalars
from gpumemnet.gpus import Gpu
from gpumemnet.profile.record import ModelProfile
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import ModelSummary

NAME = "transformer"
LENGTH = 128
"""Layers read; the thesis pads to its longest network (118 rows). Attention in plain Python costs its square."""
_CODES = {"conv": (0.0, 1.0), "linear": (1.0, 1.0), "batchnorm": (0.0, 0.0), "layernorm": (0.0, 0.0)}
_OTHER = (1.0, 0.0)
COLUMNS = 4
EPSILON = 1e-5
"""Epsilon of torch's layer normalization."""


def series(summary: ModelSummary, batch_size: int) -> list[list[float]]:
    """Build the series of (layer type, activations of one sample, parameters), padded with zeros.

    Args:
        summary: The parsed text.
        batch_size: Samples per step; printed shapes may include it.

    Returns:
        LENGTH rows of COLUMNS numbers.
    """
    rows = []
    printed = summary.batch_size or batch_size
    for layer in summary.layers[:LENGTH]:
        elements = 0
        for shape in layer.output_shapes:
            sizes = [size if size is not None else printed for size in shape]
            elements += math.prod(sizes) // max(sizes[0] if sizes else 1, 1)
        code = _CODES.get(kinds.group_of(layer.kind), _OTHER)
        rows.append([*code, float(elements), float(layer.params or 0)])
    return rows + [[0.0] * COLUMNS for _ in range(LENGTH - len(rows))]


def estimate_layers(summary: ModelSummary, profile: ModelProfile, gpu: Gpu) -> Estimate:
    """Estimate with the classifier of the job's family.

    Args:
        summary: The parsed text.
        profile: The job's profile, made from the summary.
        gpu: Only named in the result.

    Returns:
        The upper edge of the likeliest range; it is also the bound.
    """
    name = network_name(profile)
    members = tree_model.read(NAME)["networks"][name]
    answer = logits(members, series(summary, profile.batch_size), scalars(profile))
    return from_class(likeliest(answer), name, profile, gpu, NAME)


def logits(
    members: Sequence[dict[str, Any]], rows: list[list[float]], numbers: Sequence[float]
) -> list[float]:
    """Run every member on the series and the scalars and average the logits of their heads.

    Args:
        members: Arrays of each member.
        rows: The series of layers, as `series` builds it.
        numbers: The scalar features.
    """
    total: list[float] = []
    for member in members:
        pooled = [sum(column) for column in zip(*_encode(member, rows), strict=True)]
        answer = mean_logits(member["head"], [*pooled, *numbers])
        total = answer if not total else [a + b for a, b in zip(total, answer, strict=True)]
    return [value / len(members) for value in total]


def _encode(member: dict[str, Any], rows: list[list[float]]) -> list[list[float]]:
    """Embed the series, add positions, run the encoder layers."""
    for embedding in member["embedding"]:
        rows = [
            [max(value * scale + shift, 0.0) for value in affine(embedding["linear"], row)]
            for row, scale, shift in zip(rows, embedding["scale"], embedding["shift"], strict=True)
        ]
    rows = [
        [a + b for a, b in zip(row, place, strict=True)]
        for row, place in zip(rows, member["positions"], strict=True)
    ]
    for layer in member["layers"]:
        attended = _attend(layer, rows)
        rows = [_normalise(layer["norm1"], a, b) for a, b in zip(rows, attended, strict=True)]
        inner = [[max(value, 0.0) for value in affine(layer["linear1"], row)] for row in rows]
        rows = [
            _normalise(layer["norm2"], row, affine(layer["linear2"], hidden))
            for row, hidden in zip(rows, inner, strict=True)
        ]
    return rows


def _attend(layer: dict[str, Any], rows: list[list[float]]) -> list[list[float]]:
    """Apply single-head attention."""
    queries, keys, values = ([affine(layer[name], row) for row in rows] for name in ("query", "key", "value"))
    scale = 1 / math.sqrt(len(rows[0]))
    columns = list(zip(*values, strict=True))
    out = []
    for query in queries:
        scores = [scale * sum(q * k for q, k in zip(query, key, strict=True)) for key in keys]
        top = max(scores)
        weights = [math.exp(score - top) for score in scores]
        total = sum(weights)
        mixed = [sum(w * v for w, v in zip(weights, column, strict=True)) / total for column in columns]
        out.append(affine(layer["out"], mixed))
    return out


def _normalise(norm: dict[str, Sequence[float]], row: Sequence[float], added: Sequence[float]) -> list[float]:
    """Apply layer normalization to the residual sum."""
    values = [a + b for a, b in zip(row, added, strict=True)]
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values) + EPSILON)
    return [
        (value - mean) / deviation * weight + bias
        for value, weight, bias in zip(values, norm["weight"], norm["bias"], strict=True)
    ]
