"""What a tensor is, where one on the GPU is a fake one, and a sharded one holds another."""

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
    """Return the part of a sharded tensor that this rank holds; any other tensor as it is."""
    return getattr(tensor, "_local_tensor", tensor)


def unfolds(types: Any) -> bool:
    """Tell whether an operator is about tensors that hold others, as sharded ones do: it is made of operators on those.

    Args:
        types: As `__torch_dispatch__` is given them; a mode then answers NotImplemented, and meets what it is made of.
    """
    return any(hasattr(kind, "__tensor_flatten__") for kind in types)
