"""Estimators by name, and the one function that other packages call.

Adding one is a module with `estimate(profile, gpu) -> Estimate` and its name in ESTIMATORS. Two answer for other things
than a profile: `transformer` for a parsed summary, `faketensor` for a module. A module is imported when its estimator
is asked: the others' code and weights cost nothing then.
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
    name: _named(name) for name in ("ours", "boosted", "horus", "mlp_ensemble")
}
"""Those that answer for a profile."""

_TRACED = _named("traced")
DEFAULT = "ours"
LAYERS, MODULE = "transformer", "faketensor"
NAMES = (*ESTIMATORS, LAYERS, MODULE)
"""All that can be asked for."""


def estimate(profile: ModelProfile, *, gpu: str | Gpu = DEFAULT_GPU, estimator: str = DEFAULT) -> Estimate:
    """Estimate a job's GPU memory from its profile.

    Args:
        profile: The job.
        gpu: Type of GPU, by name or (with a site's own base) as a record.
        estimator: A name in ESTIMATORS; a profile made by a trace is answered by the trace's own.

    Returns:
        The estimate.

    Raises:
        SetupError: GPU or estimator is unknown.
    """
    if estimator not in ESTIMATORS:
        raise SetupError(f"unknown estimator '{estimator[:40]}'; known: {', '.join(ESTIMATORS)}")
    card = gpu_named(gpu) if isinstance(gpu, str) else gpu
    if profile.source is Source.TRACE:  # it has no layers to ask the others about, and needs no correction
        return _TRACED(profile, card)
    return ESTIMATORS[estimator](profile, card)
