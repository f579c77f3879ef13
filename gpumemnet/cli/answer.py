"""Which estimator answers for what a user gives: the text of a summary, or a module to trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpumemnet.errors import SetupError, TraceError
from gpumemnet.estimate import Estimate, Quantiles
from gpumemnet.estimators import activity
from gpumemnet.estimators.registry import DEFAULT, LAYERS, MODULE, estimate
from gpumemnet.gpus import gpu_named
from gpumemnet.profile.build import build_profile
from gpumemnet.texts.read import read
from gpumemnet.training import TrainingSetup


def for_summary(
    path_or_text: str, setup: TrainingSetup, *, gpu: str, estimator: str = DEFAULT
) -> tuple[Estimate, tuple[str, ...]]:
    """Estimate from a summary.

    Args:
        path_or_text: A file's path, or the text itself (told by a line break in it).
        setup: How the model is trained.
        gpu: Type of GPU.
        estimator: One of `gpumemnet.estimators.registry.NAMES`.

    Returns:
        The estimate, and what had to be guessed.

    Raises:
        SummaryError: The file or the text is unusable.
        SetupError: The setup is impossible for this model, or the estimator or GPU for this input.
    """
    if estimator == MODULE:
        raise SetupError(
            f"--estimator {MODULE} runs the model's code: name it with --module pkg.mod:function"
        )
    card = gpu_named(gpu)
    summary, path = read(path_or_text)
    profile, warnings = build_profile(summary, setup, path=path)
    if estimator == LAYERS:
        from gpumemnet.estimators import transformer

        result = transformer.estimate_layers(summary, profile, card)
    else:
        result = estimate(profile, gpu=card, estimator=estimator)
    return replace(result, activity=activity.estimate(profile)), warnings


def for_module(
    spec: str, inputs: Sequence[str], setup: TrainingSetup, *, gpu: str, estimator: str = DEFAULT
) -> Estimate:
    """Estimate from a module: the trace of it, or FakeTensor's count.

    Args:
        spec: "pkg.mod:name" or "path/to/file.py:name".
        inputs: As for `gpumemnet.trace.trace_module`.
        setup: How the model is trained.
        gpu: Type of GPU.
        estimator: "ours" or "faketensor".

    Raises:
        TraceError: PyTorch is missing, or the model does not run.
        SetupError: The estimator reads a summary, or the GPU is unknown.
    """
    if estimator not in (DEFAULT, MODULE):
        raise SetupError(f"--estimator {estimator} reads a model summary, not a module: leave --module away")
    card = gpu_named(gpu)
    if estimator == MODULE:
        try:
            from gpumemnet.estimators import faketensor
        except ImportError as exc:
            raise TraceError("--module needs PyTorch; install it, or give a model summary instead") from exc
        return faketensor.estimate_module(spec, inputs, setup, card)
    from gpumemnet.trace import trace_module

    found = trace_module(spec, inputs=inputs, setup=setup)
    base = card.conv_base_bytes if found.uses_cudnn else card.base_bytes
    total = base + found.reserved_peak_bytes
    return Estimate(
        estimate_bytes=total,
        upper_bytes=total + found.margin_bytes,
        confidence=None,  # the margin was set by looking at runs; no run was held out to say how often it holds
        breakdown_bytes={"base": base, **found.breakdown_bytes},
        family=found.family,
        estimator="trace",
        gpu=card.name,
        warnings=found.warnings,
        quantiles=Quantiles(points=((0.5, total), (0.99, total + found.margin_bytes))),
    )
