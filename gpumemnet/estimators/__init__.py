"""Estimators by name. Adding one is a module with `estimate(profile, gpu) -> Estimate` and its name in ESTIMATORS.

Two answer for other things than a profile: `transformer` for a parsed summary, `faketensor` for a module. A module is
imported when its estimator is asked: the others' code and weights cost nothing then.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from gpumemnet.base import Gpu
from gpumemnet.estimate import Estimate
from gpumemnet.profile import ModelProfile

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

LAYERS, MODULE = "transformer", "faketensor"
NAMES = (*ESTIMATORS, LAYERS, MODULE)
"""All that can be asked for."""
