"""From (seed, index) to one configuration: the same on every machine, with no state."""

from __future__ import annotations

from types import ModuleType

from gpumemnet.dataset.config import Configuration, Implementation
from gpumemnet.dataset.draw import Draw
from gpumemnet.dataset.models import cnn, mixer, mlp, recommender, recurrent, staged_cnn, transformer, unet
from gpumemnet.training import Optimizer, Precision

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

# The thesis' three classes get most runs, each about the same; the rest is shared by the others.
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
    ("adam", 0.25),
    ("adamw", 0.25),
    ("sgd-momentum", 0.2),
    ("sgd", 0.12),
    ("rmsprop", 0.09),
    ("adafactor", 0.09),
)
PRECISION_SHARES: tuple[tuple[Precision, float], ...] = (
    ("fp32", 0.4),
    ("tf32", 0.1),
    ("amp", 0.3),
    ("bf16", 0.2),
)
FUSABLE = ("sgd", "sgd-momentum", "adam", "adamw")

# Bytes per parameter beside the weight itself: gradient, states, and one foreach temporary.
STATE_COPIES = {"sgd": 1, "sgd-momentum": 2, "adam": 4, "adamw": 4, "rmsprop": 3, "adafactor": 1}
MAX_PARAMS = 4.0e9


def generate(seed: int, index: int, variant: int = 0) -> Configuration:
    """Return configuration number `index` of the dataset with this seed, in one of its variants."""
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
    element_bytes = {"fp32": 4.0, "tf32": 4.0, "amp": 2.6, "bf16": 2.0}[precision]
    kept = drawn.elements_per_sample * (0.25 if checkpointing else 1.0)
    weight_bytes = 2 if precision == "bf16" else 4
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
    """Draw how the optimizer walks the parameters; most people never say."""
    options: list[tuple[Implementation, float]] = [("default", 0.72), ("foreach", 0.08), ("forloop", 0.08)]
    if optimizer in FUSABLE:
        options.append(("fused", 0.12))
    return d.weighted(options)
