"""PyTorch's composite operators on CUDA; their C++ reads the device and would see "meta".

Each function replaces one of ATen's composite functions and calls the same operators that it calls for CUDA
tensors. Sources: aten/src/ATen/native/{Dropout,Linear,SoftMax,WeightNorm}.cpp; attention has a separate file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpumemnet.tracing.trace.cuda import packed, recurrent
from gpumemnet.tracing.trace.cuda.attention import attention, safe_softmax
from gpumemnet.tracing.trace.cuda.older import destroy

aten = torch.ops.aten


def dropout(x: Tensor, p: float, train: bool) -> Tensor:
    """Fused dropout: the mask is kept as one byte per element.

    Args:
        x: Tensor of any shape.
        p: Dropped share.
        train: Whether anything is dropped.
    """
    if p == 0 or not train or x.numel() == 0:
        return x
    return aten.native_dropout(x, p, train)[0]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer; the bias is added in place, which C++ does not do for tensor subclasses.

    Args:
        x: (..., inputs).
        weight: (outputs, inputs).
        bias: (outputs,), or None.
    """
    if bias is not None and x.dim() == 2:
        return torch.addmm(bias, x, weight.t())
    if bias is not None and x.dim() == 3 and x.is_contiguous():
        flat = x.view(-1, x.shape[-1])
        return torch.addmm(bias, flat, weight.t()).view(*x.shape[:-1], weight.shape[0])
    out = torch.matmul(x, weight.t())
    return out if bias is None else out.add_(bias)


def softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Softmax; fp16 in and fp32 out is one kernel.

    Args:
        x: Scores of any shape.
        dim: Dimension that sums to one.
        dtype: Type of the result; None for that of `x`.
    """
    if x.dtype == torch.float16 and dtype == torch.float32:
        return aten._softmax(x, dim, True)
    return aten._softmax(x if dtype is None else x.to(dtype), dim, False)


def log_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Log-softmax; fp16 in and fp32 out is one kernel.

    Args:
        x: Scores of any shape.
        dim: Dimension that sums to one.
        dtype: Type of the result; None for that of `x`.
    """
    if x.dtype == torch.float16 and dtype == torch.float32:
        return aten._log_softmax(x, dim, True)
    return aten._log_softmax(x if dtype is None else x.to(dtype), dim, False)


def _one_kernel(op: Any) -> Any:
    """Keep an operator with a CUDA kernel whole, though builds without CUDA decompose it."""

    def kernel(*args: Any) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    return kernel


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Weight norm; fused for the first and the last dimension.

    Args:
        v: The direction, of the weight's shape.
        g: The length, one for each slice along `dim`.
        dim: Dimension that remains.
    """
    if dim in (0, v.dim() - 1):
        return aten._weight_norm_interface(v.contiguous(), g.contiguous(), dim)[0]
    return v * (g / aten.norm_except_dim(v, 2, dim))


_KERNELS: dict[str, Any] = {
    "dropout": dropout,
    "linear": linear,
    "silu_backward": _one_kernel(aten.silu_backward.default),
    "mish_backward": _one_kernel(aten.mish_backward.default),
    "softmax.int": softmax,
    "log_softmax.int": log_softmax,
    "_safe_softmax": safe_softmax,
    "_weight_norm": weight_norm,
    "scaled_dot_product_attention": attention,
    "lstm.input": partial(recurrent.run, "lstm"),
    "gru.input": partial(recurrent.run, "gru"),
    "rnn_tanh.input": partial(recurrent.run, "rnn"),
    "rnn_relu.input": partial(recurrent.run, "rnn"),
    **packed.KERNELS,
}


@contextmanager
def registered() -> Iterator[None]:
    """Replace the composite functions by these, for tensors on CUDA only."""
    library = torch.library.Library("aten", "IMPL")
    for name, kernel in _KERNELS.items():
        library.impl(name, kernel, "AutogradCUDA")
    try:
        yield
    finally:
        destroy(library)
