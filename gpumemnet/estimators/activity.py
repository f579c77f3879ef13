"""Estimate a training's SM and memory activity on an H200, and its step time, from its profile alone.

Three times follow from the profile: computing (multiply-adds over the peak of the precision), moving (bytes over the
bandwidth) and launching (kernels, a few microseconds each). Linear models on their logarithms, with hinges at the
transitions, were fitted to 492 measured trainings (`python -m gpumemnet.learning.train.activity` fits and
evaluates them). They describe the training alone: a job that waits for its data is less active.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpumemnet.errors import ModelFileError
from gpumemnet.estimate import Activity, Likely
from gpumemnet.names import FAMILIES, OPTIMIZERS
from gpumemnet.profile.record import ModelProfile
from gpumemnet.units import MEGA

WEIGHTS = Path(__file__).resolve().parents[1] / "weights" / "activity.json"
TARGETS = ("step_s", "smact", "busy", "dram")
"""Seconds of a step; SM activity; share of the time in which any kernel runs; share of the memory's bandwidth."""
PEAK_FLOPS = {"fp32": 67e12, "tf32": 495e12, "amp": 989e12, "bf16": 989e12}
"""H200 SXM, dense, from NVIDIA's data sheet."""
BYTES_S = 4.8e12
LAUNCH_S = 8e-6
"""Seconds between kernel launches in PyTorch; the exact value is learned."""
_HINGES_LAUNCH = (-4, -3, -2, -1, 0, 1, 2)
_HINGES_BYTES = (-3, -2, -1, 0, 1)


def vector(profile: ModelProfile) -> dict[str, float]:
    """Return the inputs of the linear models, by name."""
    log = math.log
    flops = 6.0 * max(profile.mega_mult_adds, 1) * MEGA  # forward, and twice as much for backward
    moved = 3.0 * profile.output_sum_bytes + 2.0 * profile.saved_bytes + 1
    stepped = 2.0 * (profile.parameter_bytes + profile.gradient_bytes + profile.optimizer_bytes) + 1
    adafactor = profile.optimizer == "adafactor"
    kernels = 3 * profile.tensors + 3 * profile.convs + 2 * profile.norms + 10
    kernels_s = (kernels + (12.0 if adafactor else 0.15) * profile.weights) * LAUNCH_S
    compute_s, memory_s = flops / PEAK_FLOPS[profile.precision], (moved + stepped) / BYTES_S
    tensors, recurrent = profile.tensors + 1, float(profile.recurrents > 0)
    beyond_launch, beyond_bytes = log((compute_s + memory_s) / kernels_s), log(compute_s / memory_s)
    found = {
        "compute": log(compute_s),
        "memory": log(memory_s),
        "launch": log(kernels_s),
        "sum": log(compute_s + memory_s + kernels_s),
        "work": log(compute_s + memory_s),
        "moved": log(moved),
        "stepped": log(stepped),
        "weights": log(1 + profile.weights),
        "batch": log(profile.batch_size),
        "tokens": log(1 + profile.seq_len),
        "convs": profile.convs / tensors,
        "grouped": profile.grouped_convs / tensors,
        "grouped_count": log(1 + profile.grouped_convs),
        "linears": profile.linears / tensors,
        "norms": profile.norms / tensors,
        "attentions": profile.attentions / tensors,
        "activations": profile.activations / tensors,
        "recurrent": recurrent,
        "recurrent_count": log(1 + profile.recurrents),
        "recurrent_tokens": recurrent * log(1 + profile.seq_len),
        "embeddings": log(1 + profile.embeddings),
        "checkpointing": float(profile.gradient_checkpointing),
        "largest": log(profile.largest_bytes + 1),
        "scores": profile.score_bytes / moved,
        "hidden": profile.hidden_bytes / moved,
        "input": log(profile.input_bytes + 1),
        "moved_a_sample": log(moved / profile.batch_size),
        "flops_a_kernel": log(flops * LAUNCH_S / kernels_s),
        "parameters": log(1 + profile.parameters),
        "adafactor_weights": float(adafactor) * log(1 + profile.weights),
    }
    found |= {f"beyond_launch_{at}": max(0.0, beyond_launch - at) for at in _HINGES_LAUNCH}
    found |= {f"beyond_bytes_{at}": max(0.0, beyond_bytes - at) for at in _HINGES_BYTES}
    for word in PEAK_FLOPS:
        here = float(profile.precision == word)
        found |= {word: here, f"{word}_bytes": here * beyond_bytes, f"{word}_launch": here * beyond_launch}
    for family in FAMILIES:
        here = float(profile.family == family)
        found |= {family: here, f"{family}_launch": here * beyond_launch}
    return found | {name: float(profile.optimizer == name) for name in OPTIMIZERS}


def scaled(target: str, value: float) -> float:
    """Return a target in the models' scale: a logarithm for a time, log odds for a share.

    Args:
        target: Name of the target.
        value: Seconds, or a share from 0 to 1.
    """
    if target == "step_s":
        return math.log(value)
    value = min(max(value, 0.003), 0.997)
    return math.log(value / (1 - value))


def unscaled(target: str, value: float) -> float:
    """Invert `scaled`.

    Args:
        target: Name of the target.
        value: The value in the models' scale.
    """
    return (
        math.exp(min(value, 50.0))
        if target == "step_s"
        else 1 / (1 + math.exp(-max(min(value, 50.0), -50.0)))
    )


def estimate(profile: ModelProfile) -> Activity | None:
    """Estimate the activity of a training alone on an H200 without waits for data; None without a weights file."""
    try:
        weights = load()
    except ModelFileError:
        return None
    numbers = vector(profile)
    form = "shapes" if profile.source in ("torchinfo", "torchsummary") else "no_shapes"
    found = {}
    for target in TARGETS:
        model = weights[target]
        best = model["intercept"] + sum(c * numbers[name] for name, c in model["coefficients"].items())
        low, high = model["interval"][form]
        found[target] = Likely(
            value=unscaled(target, best), low=unscaled(target, best + low), high=unscaled(target, best + high)
        )
    return Activity(gpu="h200", **found)


@lru_cache(maxsize=1)
def load() -> Mapping[str, Any]:
    """Read the weights.

    Raises:
        ModelFileError: They are missing, damaged or for other features.
    """
    try:
        values: dict[str, Any] = json.loads(WEIGHTS.read_text(encoding="utf-8"))["models"]
    except (OSError, ValueError, KeyError) as exc:
        raise ModelFileError(
            f"{WEIGHTS}: no usable weights ({exc}); run `python -m gpumemnet.learning.train.activity`"
        ) from exc
    return values
