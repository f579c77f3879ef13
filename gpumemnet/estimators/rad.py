"""RAD's estimator: the analytical model with a learned correction and a calibrated bound.

Known limitations:
    - A summary lists modules, not the graph. Function calls between them are inferred from shapes; control flow and
      modules called more than once in a text without shapes are not seen. Cross-attention is ordered as self-attention.
    - cuDNN's workspaces follow rules found on one H200 and one release (rules/rules.csv); it may choose otherwise.
    - Recurrent layers: what cuDNN saves was fitted and varies by a fifth either way.
    - `print(model)` shows no shapes: without `--input` and `seq_len` an input size is assumed, and the bound is wide.
    - Layers below a depth limit are guessed from their class name and parameter count.
    - Keras texts are treated by PyTorch's rules. FSDP, DeepSpeed, tensor and pipeline parallelism, CUDA graphs and
      torch.compile are not modelled; a data-parallel process is assumed to hold a whole copy, the buckets of DDP and
      NCCL.
    - The bound was calibrated on one GPU type with one release of PyTorch; 1 % is the miss rate on such jobs, not on
      kinds of models that no measured run resembles.
"""

from __future__ import annotations

import math

from gpumemnet.errors import ModelFileError
from gpumemnet.estimate import Estimate, Quantiles
from gpumemnet.estimators import analytic, base, conformal, features, tree_model
from gpumemnet.gpus import Gpu
from gpumemnet.names import Family, Source
from gpumemnet.profile.record import ModelProfile
from gpumemnet.units import MIB

WEIGHTS = "rad"
PLAIN_FACTOR = 1.25
"""Factor of the bound over the analytical model if no weights are installed."""
PLAIN_HEADROOM_BYTES = 256 * MIB


def estimate(profile: ModelProfile, gpu: Gpu) -> Estimate:
    """Estimate from the analytical model and the learned correction.

    Args:
        profile: The job.
        gpu: The job's GPU; the correction was learned on one GPU, and memory outside PyTorch is the GPU's base.

    Returns:
        The estimate.
    """
    parts = analytic.breakdown(profile, gpu)
    warnings = [*base.warnings(profile, gpu)]
    if not gpu.measured:
        warnings.append(f"the base of {gpu.name} is {gpu.note}")
    buckets = base.bucket_bytes(profile)
    modelled = sum(parts.values()) - parts["base"]
    fixed = parts["base"] + buckets
    points: tuple[tuple[float, int], ...]
    try:
        learned = tree_model.load(WEIGHTS)
    except ModelFileError as exc:
        warnings.append(f"estimated without the learned correction: {exc}")
        best, upper = modelled, int(modelled * PLAIN_FACTOR) + PLAIN_HEADROOM_BYTES
        points = ((0.5, fixed + best), (conformal.CONFIDENCE, fixed + upper))
    else:
        smooth = learned.constants["smooth_mib"] * MIB
        correction = learned.constants[share_of_correction(profile)] * learned.trees["correction"].predict(
            features.vector(profile)
        )
        corrected = (modelled + smooth) * math.exp(correction)
        best = max(int(corrected - smooth), 0)
        points = tuple(
            (level, fixed + max(int(corrected * math.exp(width) - smooth), best))
            for level, width in zip(
                conformal.LEVELS, conformal.widths(learned.quantiles, profile), strict=True
            )
        )
    quantiles = Quantiles(points=points)
    return Estimate(
        estimate_bytes=fixed + best,
        upper_bytes=quantiles.at(conformal.CONFIDENCE),
        confidence=conformal.CONFIDENCE,
        breakdown_bytes=_distributed(parts | {"gradients": parts["gradients"] + buckets}, best - modelled),
        family=profile.family,
        estimator="rad",
        gpu=gpu.name,
        warnings=tuple(warnings),
        quantiles=quantiles,
    )


def share_of_correction(profile: ModelProfile) -> str:
    """Return the name of the weights' constant for the share of the correction applied to a job."""
    if profile.source == Source.MODULE_REPR:
        return "shrink_print"
    complete = profile.source == Source.TORCHINFO and not profile.hidden_bytes
    return "shrink_close" if complete or profile.family is Family.TRANSFORMER else "shrink"


def _distributed(parts: dict[str, int], difference: int) -> dict[str, int]:
    """Distribute the correction over the analytical parts, the least certain first, none below zero."""
    corrected = dict(parts)
    for name in ("workspace", "activations", "gradients", "optimizer", "parameters"):
        change = max(difference, -corrected[name])
        corrected[name] += change
        difference -= change
    return corrected
