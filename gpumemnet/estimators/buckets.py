"""Shared parts of the thesis' two classifiers: ranges of memory as classes, and small MLPs in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpumemnet.estimate import Estimate
from gpumemnet.estimators.analytic import KEYS
from gpumemnet.gpus import Gpu
from gpumemnet.names import OPTIMIZERS, PRECISIONS, Family
from gpumemnet.profile.record import ModelProfile
from gpumemnet.units import GIB

Layer = dict[str, Any]
NARROW_GIB, WIDE_GIB = 1, 8
"""Widths of the ranges: 1 GiB for MLPs, 8 GiB for everything else (thesis section 5.4.4)."""


def network_name(profile: ModelProfile) -> str:
    """Return the name of the classifier for a job.

    The thesis trains one per family; other networks use an additional one, trained on all of them.
    """
    return profile.family.value


def width_gib(name: str) -> int:
    """Return the width of the ranges of a classifier."""
    return NARROW_GIB if name == Family.MLP else WIDE_GIB


def scalars(profile: ModelProfile) -> list[float]:
    """Build the thesis' scalar features, also unscaled.

    Depth, activations of one sample, activations * batch, parameters, batch, and counts of layers. Settings fixed in
    the thesis (Adam, fp32, no checkpointing) vary here and are passed as 0 or 1.
    """
    activations = profile.output_sum_bytes / 4
    numbers = [
        max(profile.convs, profile.linears),
        activations / profile.batch_size,
        activations,
        profile.parameters,
        profile.batch_size,
        profile.convs,
        profile.linears,
        profile.norms,
        profile.activations,
        profile.gradient_checkpointing,
    ]
    numbers += [profile.optimizer == name for name in OPTIMIZERS]
    numbers += [profile.precision == name for name in PRECISIONS]
    return [float(number) for number in numbers]


def affine(layer: Layer, row: Sequence[float]) -> list[float]:
    """Return weight @ row + bias.

    Args:
        layer: "weight", one list per output, and "bias".
        row: One number per input.
    """
    return [
        sum(w * x for w, x in zip(weights, row, strict=True)) + bias
        for weights, bias in zip(layer["weight"], layer["bias"], strict=True)
    ]


def mean_logits(members: Sequence[Sequence[Layer]], row: Sequence[float]) -> list[float]:
    """Run every member of an MLP ensemble and average their logits.

    Args:
        members: The layers of each member.
        row: Features, one number each.
    """
    total: list[float] = []
    for layers in members:
        values = list(row)
        for index, layer in enumerate(layers):
            values = affine(layer, values)
            if index + 1 < len(layers):
                values = [value if value > 0 else 0.0 for value in values]
        total = values if not total else [a + b for a, b in zip(total, values, strict=True)]
    return [value / len(members) for value in total]


def likeliest(logits: Sequence[float]) -> int:
    """Return the number of the largest logit."""
    return max(range(len(logits)), key=logits.__getitem__)


def from_class(number: int, name: str, profile: ModelProfile, gpu: Gpu, estimator: str) -> Estimate:
    """Turn a class into an estimate: as in the thesis, the upper edge of its range, base included.

    Args:
        number: The class, from 0 on.
        name: Name of the classifier.
        profile: The job.
        gpu: Only named in the result.
        estimator: Named in the result.
    """
    total = (number + 1) * width_gib(name) * GIB
    return Estimate(
        estimate_bytes=total,
        upper_bytes=total,
        confidence=None,
        breakdown_bytes=dict.fromkeys(KEYS, 0) | {"activations": total},
        family=profile.family,
        estimator=estimator,
        gpu=gpu.name,
    )
