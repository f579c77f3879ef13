"""Paged optimizers of bitsandbytes: their states lie in memory that the driver moves between GPU and CPU.

How much of it is on the GPU depends on what else wants the room. All of it is counted there.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from gpumemnet.tracing.script.pretend import Said
from gpumemnet.tracing.trace.tensors import CUDA

PAGED = "a paged optimizer's states are counted on the GPU; under pressure the driver moves them to the CPU"


def pretended(said: Said) -> None:
    """Stand in for bitsandbytes' calls of the driver, if the script has loaded it; again is no harm.

    Args:
        said: Is told if a paged state is made.
    """
    functional: Any = sys.modules.get("bitsandbytes.functional")
    if functional is None:
        return

    def get_paged(*shape: int, dtype: torch.dtype = torch.float32, **_: Any) -> torch.Tensor:
        said.warn[PAGED] = None
        return torch.empty(shape, dtype=dtype, device=CUDA)

    functional.get_paged = get_paged
    for name in ("prefetch_tensor", "elementwise_func"):
        setattr(functional, name, lambda *_, **__: None)
