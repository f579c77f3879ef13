"""Baseline: the thesis' MLP ensemble (section 5.4.4): thirteen small MLPs that select a range of memory."""

from __future__ import annotations

from gpumemnet.estimate import Estimate
from gpumemnet.estimators import tree_model
from gpumemnet.estimators.buckets import from_class, likeliest, mean_logits, network_name, scalars
from gpumemnet.gpus import Gpu
from gpumemnet.profile.record import ModelProfile

NAME = "mlp_ensemble"


def estimate(profile: ModelProfile, gpu: Gpu) -> Estimate:
    """Estimate with the classifier of the job's family.

    Args:
        profile: The job.
        gpu: Only named in the result: the classes are ranges measured on one GPU.

    Returns:
        The upper edge of the likeliest range; it is also the bound.
    """
    name = network_name(profile)
    members = tree_model.read(NAME)["networks"][name]
    return from_class(likeliest(mean_logits(members, scalars(profile))), name, profile, gpu, NAME)
