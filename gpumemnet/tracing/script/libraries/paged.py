"""Paged optimizers of bitsandbytes: the driver moves their states between GPU and CPU.

The part on the GPU depends on other demand for memory. Here all of it is counted as GPU memory.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from gpumemnet.tracing.script.pretend import Settings
from gpumemnet.tracing.trace.cuda.tensors import CUDA

PAGED = "a paged optimizer's states are counted on the GPU; under pressure the driver moves them to the CPU"


def pretended(settings: Settings) -> None:
    """Replace bitsandbytes' driver calls, if the script has loaded it. Calling again is harmless.

    Args:
        settings: Receives a note if a paged state is made.
    """
    functional: Any = sys.modules.get("bitsandbytes.functional")
    if functional is None:
        return

    def get_paged(*shape: int, dtype: torch.dtype = torch.float32, **_: Any) -> torch.Tensor:
        settings.warn[PAGED] = None
        return torch.empty(shape, dtype=dtype, device=CUDA)

    functional.get_paged = get_paged
    for name in ("prefetch_tensor", "elementwise_func"):
        setattr(functional, name, lambda *_, **__: None)
