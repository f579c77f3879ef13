"""Make TensorFlow and JAX allocate in steps in shared jobs.

By default they allocate most of a GPU at their start, so the observed peak of a shared job would be its limit.
"""

from __future__ import annotations

from collections.abc import Mapping

GROWING = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Each variable's value with which its framework allocates what it uses (their pages on GPU memory)."""


def growing(job: Mapping[str, str], task: Mapping[str, str]) -> dict[str, str]:
    """Return what makes TensorFlow and JAX allocate in steps on a shared GPU, where the user has not chosen.

    Args:
        job: What the Prolog left for every task of the job.
        task: The task's environment.

    >>> growing({"RAD_KIND": "shared"}, {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"})
    {'TF_FORCE_GPU_ALLOW_GROWTH': 'true'}
    >>> growing({"RAD_KIND": "whole"}, {})
    {}
    """
    if job.get("RAD_KIND") != "shared":
        return {}
    return {name: value for name, value in GROWING.items() if name not in task}
