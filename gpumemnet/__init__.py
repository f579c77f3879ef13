"""Estimate the GPU memory of a training job before it runs.

`gpumemnet.save` and `gpumemnet.summary` (tracing/saved/calls.py) are for training code, where PyTorch is installed;
importing this package imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_CALLS = ("save", "summary")


def __getattr__(name: str) -> Any:
    """Return one of the calls; their module needs torch."""
    if name in _CALLS:
        return getattr(import_module("gpumemnet.tracing.saved.calls"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
