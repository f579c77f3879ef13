"""Settings of PyTorch that move the peak of a training: the allocator's variable, TF32, and an emptied cache.

docs/measurements/2026-11-programs.md has what each changed. Left out is what took no more in any of five networks:
`garbage_collection_threshold`, `set_per_process_memory_fraction`, `use_deterministic_algorithms`, TF32 for matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from gpumemnet.tracing.trace.recording.convolution import Convolution

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""The second is the name since PyTorch 2.10 (torch/docs: notes/cuda, "Optimizing memory usage")."""
_TAKE_MORE = ("max_split_size_mb", "roundup_power2_divisions", "backend")


def options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the allocator's options by name.

    Args:
        environment: The script's, at its end: it may set the variable itself.

    >>> options({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True, max_split_size_mb:128"})
    {'expandable_segments': 'True', 'max_split_size_mb': '128'}
    """
    texts = [environment.get(name, "") for name in VARIABLES]
    pairs = (each.partition(":") for text in texts for each in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def expandable_segments(environment: Mapping[str, str]) -> bool:
    """Return whether the allocator grows its segments instead of adding to them.

    Args:
        environment: As for `options`.
    """
    return options(environment).get("expandable_segments", "").lower() == "true"


def kinds(environment: Mapping[str, str], purposes: Iterable[Any], *, emptied: bool) -> Iterator[str]:
    """Yield the kinds of doubt (`uncertainty.py`) that a script's settings raise.

    Args:
        environment: As for `options`.
        purposes: Those of the workspaces: its convolutions are among them.
        emptied: Whether it emptied the allocator's cache while it trained.
    """
    if any(name in options(environment) for name in _TAKE_MORE):
        yield "allocator"
    if emptied:
        yield "emptied"
    full = any(isinstance(each, Convolution) and each.item_bytes == 4 for each in purposes)
    if full and not torch.backends.cudnn.allow_tf32:
        yield "no TF32"
