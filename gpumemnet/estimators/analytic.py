"""The analytical model: bytes by purpose, from the numbers of a profile."""

from __future__ import annotations

from gpumemnet.estimators.base import base_bytes, without_cublas_bytes
from gpumemnet.gpus import Gpu
from gpumemnet.profile.record import ModelProfile

KEYS = ("base", "parameters", "gradients", "optimizer", "activations", "workspace")
"""Order of the breakdown everywhere."""


def breakdown(profile: ModelProfile, gpu: Gpu) -> dict[str, int]:
    """Split the expected footprint by purpose.

    Args:
        profile: The job.
        gpu: The job's GPU.

    Returns:
        Bytes by the names in KEYS; their sum estimates nvidia-smi's value.
    """
    idle = without_cublas_bytes(profile)
    base = max(base_bytes(profile, gpu) - idle, 0)
    cublas = 0 if idle else gpu.cublas_bytes
    total = profile.reserved_bytes
    parameters = min(profile.parameter_bytes, total)
    optimizer = min(profile.optimizer_bytes, total - parameters)
    at_step = min(profile.gradient_bytes, total - parameters - optimizer)
    activations = min(profile.saved_bytes + profile.input_bytes, total - parameters - optimizer)
    if activations > at_step:  # the peak is near the end of the forward pass, before most gradients exist
        gradients = min(at_step, total - parameters - optimizer - activations)
    else:
        gradients, activations = at_step, min(activations, total - parameters - optimizer - at_step)
    workspace = total - parameters - optimizer - gradients - activations + cublas
    return dict(zip(KEYS, (base, parameters, gradients, optimizer, activations, workspace), strict=True))
