"""Estimators by name. Adding one is a module with `estimate(profile, gpu) -> Estimate` and a line here.

Two more answer for other things than a profile: `transformer` for a parsed summary, `faketensor` for a module.
"""

from __future__ import annotations

from collections.abc import Callable

from gpumemnet.base import Gpu
from gpumemnet.estimate import Estimate
from gpumemnet.estimators import boosted, horus, mlp_ensemble, ours
from gpumemnet.profile import ModelProfile

Estimator = Callable[[ModelProfile, Gpu], Estimate]

ESTIMATORS: dict[str, Estimator] = {
    "ours": ours.estimate,
    "boosted": boosted.estimate,
    "horus": horus.estimate,
    "mlp_ensemble": mlp_ensemble.estimate,
}
