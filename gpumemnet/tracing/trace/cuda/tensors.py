"""Classify tensors where one on the GPU is a fake one, and a sharded one holds another."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

CUDA = torch.device("cuda:0")
META = torch.device("meta")


def on_cuda(tensor: Any) -> bool:
    """Return whether this is a fake tensor on the pretended device."""
    return isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a sharded tensor; any other tensor unchanged."""
    return getattr(tensor, "_local_tensor", tensor)


def unfolds(types: Any) -> bool:
    """Return whether an operator is on tensors that hold others (sharded ones), so that it runs operators on those.

    Args:
        types: Argument of `__torch_dispatch__`; if True, a mode returns NotImplemented and gets the inner operators.
    """
    return any(hasattr(kind, "__tensor_flatten__") for kind in types)
