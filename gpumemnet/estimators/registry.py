"""Look up estimators by name, with one function for other packages.

To add one, write a module with `estimate(profile, gpu) -> Estimate` and put its name in ESTIMATORS. Two take other
inputs than a profile: `transformer` a parsed summary, `faketensor` a module. A module is imported only when its
estimator is used, so other estimators' code and weights are not loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from gpumemnet.errors import SetupError
from gpumemnet.estimate import Estimate
from gpumemnet.gpus import DEFAULT_GPU, Gpu, gpu_named
from gpumemnet.names import Source
from gpumemnet.profile.record import ModelProfile

Estimator = Callable[[ModelProfile, Gpu], Estimate]


def _named(name: str) -> Estimator:
    def estimate(profile: ModelProfile, gpu: Gpu) -> Estimate:
        answer: Estimate = import_module(f"gpumemnet.estimators.{name}").estimate(profile, gpu)
        return answer

    return estimate


ESTIMATORS: dict[str, Estimator] = {
    name: _named(name) for name in ("rad", "boosted", "horus", "mlp_ensemble")
}
"""Estimators of a profile."""

_TRACED = _named("traced")
DEFAULT = "rad"
LAYERS, MODULE = "transformer", "faketensor"
NAMES = (*ESTIMATORS, LAYERS, MODULE)
"""Names of all estimators."""


def estimate(profile: ModelProfile, *, gpu: str | Gpu = DEFAULT_GPU, estimator: str = DEFAULT) -> Estimate:
    """Estimate a job's GPU memory from its profile.

    Args:
        profile: The job.
        gpu: Type of GPU, by name or (with a site's own base) as a record.
        estimator: A name in ESTIMATORS; a trace's profile always uses the trace's estimator.

    Returns:
        The estimate.

    Raises:
        SetupError: GPU or estimator is unknown.
    """
    if estimator not in ESTIMATORS:
        raise SetupError(f"unknown estimator '{estimator[:40]}'; known: {', '.join(ESTIMATORS)}")
    model = gpu_named(gpu) if isinstance(gpu, str) else gpu
    if profile.source is Source.TRACE:  # it has no layers for the others, and needs no correction
        return _TRACED(profile, model)
    return ESTIMATORS[estimator](profile, model)
