"""Generate a configuration from (seed, index): the same on every machine, without state."""

from __future__ import annotations

from types import ModuleType

from gpumemnet.learning.dataset.config import Configuration, Implementation
from gpumemnet.learning.dataset.draw import Draw
from gpumemnet.learning.dataset.models import (
    cnn,
    mixer,
    mlp,
    recommender,
    recurrent,
    staged_cnn,
    transformer,
    unet,
)
from gpumemnet.names import Optimizer, Precision

FAMILIES: dict[str, ModuleType] = {
    "mlp": mlp,
    "cnn": cnn,
    "staged_cnn": staged_cnn,
    "transformer": transformer,
    "recurrent": recurrent,
    "unet": unet,
    "mixer": mixer,
    "recommender": recommender,
}

# The thesis' three classes get most runs, about the same number each; the others share the rest.
SHARES: tuple[tuple[str, float], ...] = (
    ("mlp", 0.11),
    ("cnn", 0.19),
    ("staged_cnn", 0.24),
    ("transformer", 0.29),
    ("recurrent", 0.05),
    ("unet", 0.05),
    ("mixer", 0.04),
    ("recommender", 0.03),
)
OPTIMIZER_SHARES: tuple[tuple[Optimizer, float], ...] = (
    (Optimizer.ADAM, 0.25),
    (Optimizer.ADAMW, 0.25),
    (Optimizer.SGD_MOMENTUM, 0.2),
    (Optimizer.SGD, 0.12),
    (Optimizer.RMSPROP, 0.09),
    (Optimizer.ADAFACTOR, 0.09),
)
PRECISION_SHARES: tuple[tuple[Precision, float], ...] = (
    (Precision.FP32, 0.4),
    (Precision.TF32, 0.1),
    (Precision.AMP, 0.3),
    (Precision.BF16, 0.2),
)
FUSABLE = (Optimizer.SGD, Optimizer.SGD_MOMENTUM, Optimizer.ADAM, Optimizer.ADAMW)

# Bytes per parameter in addition to the weight: gradient, states, and one foreach temporary.
STATE_COPIES = {
    Optimizer.SGD: 1,
    Optimizer.SGD_MOMENTUM: 2,
    Optimizer.ADAM: 4,
    Optimizer.ADAMW: 4,
    Optimizer.RMSPROP: 3,
    Optimizer.ADAFACTOR: 1,
}
ELEMENT_BYTES = {Precision.FP32: 4.0, Precision.TF32: 4.0, Precision.AMP: 2.6, Precision.BF16: 2.0}
"""Bytes per element of a saved activation, on average."""
MAX_PARAMS = 4.0e9


def generate(seed: int, index: int, variant: int = 0) -> Configuration:
    """Return configuration number `index` of the dataset with this seed, in one of its variants.

    Args:
        seed: Seed of the whole dataset.
        index: Number of the model under that seed.
        variant: 1 for the same model and settings with another batch size.
    """
    d = Draw(seed, index)
    while True:
        family = d.weighted(SHARES)
        module = FAMILIES[family]
        style = d.choice(module.STYLES)
        drawn = module.draw(d, style)
        if drawn.params <= MAX_PARAMS:
            break
    optimizer = d.weighted(OPTIMIZER_SHARES)
    precision = d.weighted(PRECISION_SHARES)
    checkpointing = drawn.checkpointable and d.chance(0.15)
    element_bytes = ELEMENT_BYTES[precision]
    kept = drawn.elements_per_sample * (0.25 if checkpointing else 1.0)
    weight_bytes = 2 if precision is Precision.BF16 else 4
    fixed = drawn.params * weight_bytes * (1 + STATE_COPIES[optimizer])
    return Configuration(
        seed=seed,
        index=index,
        family=family,
        style=style,
        arch=drawn.arch,
        batch_size=d.batch_size(kept * element_bytes, fixed, drawn.batch_range, variant),
        variant=variant,
        seq_len=drawn.seq_len,
        optimizer=optimizer,
        implementation=_implementation(d, optimizer),
        precision=precision,
        gradient_checkpointing=checkpointing,
    )


def _implementation(d: Draw, optimizer: Optimizer) -> Implementation:
    """Draw how the optimizer processes parameters; most users do not choose."""
    options: list[tuple[Implementation, float]] = [("default", 0.72), ("foreach", 0.08), ("forloop", 0.08)]
    if optimizer in FUSABLE:
        options.append(("fused", 0.12))
    return d.weighted(options)
