"""Random number generators of the pretended GPU, which C++ would make through the driver."""

from __future__ import annotations

from typing import Any

import torch

from gpumemnet.tracing.trace.cuda.tensors import CUDA

_ORIGINAL: Any = torch.Generator


class _Known(type(_ORIGINAL)):  # type: ignore[misc]
    """Count PyTorch's own generators, such as its default one, as instances."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _ORIGINAL)


class Generator(_ORIGINAL, metaclass=_Known):  # type: ignore[misc]
    """Generator that is on the CPU for C++, whatever device the script names."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """Make one on the CPU for a GPU."""
        named = CUDA if isinstance(device, int) else torch.device(device)
        made = super().__new__(cls, "cpu" if named.type == "cuda" else named)
        made.on_gpu = named.type == "cuda"
        return made

    def __init__(self, device: Any = "cpu") -> None:
        """Do nothing more: C++ has made it."""

    @property
    def device(self) -> torch.device:
        """Return the device that the script named."""
        return CUDA if self.on_gpu else super().device


def without(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments without a generator of the GPU: a trace has no values."""
    generator = kwargs.get("generator")
    if isinstance(generator, _ORIGINAL) and generator.device.type == "cuda":
        return {name: value for name, value in kwargs.items() if name != "generator"}
    return kwargs
