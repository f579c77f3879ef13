"""Memory that CUDA kernels use beyond their outputs: library workspaces, casts and copies inside an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gpumemnet.gpu_memory.cudnn import reduction
from gpumemnet.gpu_memory.rules import numbers
from gpumemnet.tracing.trace.recording import convolution
from gpumemnet.tracing.trace.recording.request import Request

aten = torch.ops.aten
GEMMS = frozenset(
    (
        aten.mm.default,
        aten.addmm.default,
        aten.bmm.default,
        aten.baddbmm.default,
        aten.addmv.default,
        aten.mv.default,
    )
)
REDUCTIONS = {
    aten.sum.dim_IntList: 1,
    aten.sum.default: 1,
    aten.mean.dim: 1,
    aten.mean.default: 1,
    aten.linalg_vector_norm.default: 2,
    aten.amax.default: 1,
    aten.amin.default: 1,
}
"""Reductions by PyTorch's kernel, with the position of the argument that names the dimensions."""


FEW_INDICES = 3072
"""Up to this count the gradient of an embedding is summed without sorting (aten/src/ATen/native/cuda/Embedding.cu)."""
ROWS_PER_THREAD, WARP = 10, 32


def reduction_bytes(x: torch.Tensor, dims: Sequence[int] | None) -> int:
    """Return the size of the buffer for reducing a tensor.

    Args:
        x: Tensor to reduce.
        dims: The dimensions; None or empty for all.
    """
    reduced = {d % x.dim() for d in dims} if dims else set(range(x.dim()))
    sizes = ((x.stride(d), x.shape[d], d in reduced) for d in range(x.dim()) if x.shape[d] > 1)
    return reduction.buffer_bytes(tuple(sizes))


def softmax_backward(args: Any, out: torch.Tensor) -> int:
    """Return the product of gradient and output, made first (aten/src/ATen/native/cuda/SoftMax.cu).

    Args:
        args: Positional arguments of the operator.
        out: Its result.
    """
    grad, output = args[:2]
    return grad.numel() * torch.promote_types(grad.dtype, output.dtype).itemsize


def embedding_backward(args: Any, out: torch.Tensor) -> int:
    """Return the partial sums of sorted index rows, in fp32 (.../cuda/EmbeddingBackwardKernel.cu).

    Args:
        args: Positional arguments of the operator.
        out: Its result.
    """
    indices = args[1].numel()
    if indices <= FEW_INDICES:
        return 0
    parts = -(-indices // ROWS_PER_THREAD) + min(indices, args[2])
    return parts * -(-out.shape[-1] // WARP) * WARP * 4


def cudnn_attention(args: Any, out: Any) -> int:
    """Return 0; only cuDNN's library adds to the process' base.

    Args:
        args: Positional arguments of the operator.
        out: Its result.
    """
    return 0


def cudnn_attention_backward(args: Any, out: Any) -> int:
    """Return the fp32 sum of the query's gradient and one number for each row (bench/estimator/allocator_history.py).

    Args:
        args: Positional arguments of the operator.
        out: Its result.
    """
    query = args[1]
    return 4 * (query.numel() + query.numel() // query.shape[-1])


_SCRATCH: dict[str, Callable[[Any, Any], int]] = {
    "_softmax_backward_data": softmax_backward,
    "embedding_dense_backward": embedding_backward,
    "_scaled_dot_product_cudnn_attention": cudnn_attention,
    "_scaled_dot_product_cudnn_attention_backward": cudnn_attention_backward,
}
SCRATCH = {getattr(aten, name).default: takes for name, takes in _SCRATCH.items() if hasattr(aten, name)}
"""Workspaces of other operators, allocated after their outputs; PyTorch before 2.5 has no cuDNN attention."""
CUDNN_ATTENTION = "_scaled_dot_product_cudnn_attention.default"

CUBLAS = "cublas"
"""Purpose of the workspaces that cuBLAS keeps."""


class Workspaces:
    """Finds the workspaces of operators and libraries."""

    def __init__(self) -> None:
        self._cublas = numbers.of("cublas")
        self._kept: set[tuple[str, str]] = set()

    def kept(self, func: Any, args: Any, phase: str) -> list[int]:
        """Return the workspaces that libraries allocate now and keep: one per thread for each of cuBLAS and cuBLASLt.

        Backward runs in a separate thread with separate handles and workspaces.

        Args:
            func: The operator.
            args: Its positional arguments.
            phase: "forward", "backward" or "step".
        """
        if func not in GEMMS:
            return []
        thread = "backward" if phase == "backward" else "main"
        needed = {"cublas": self._cublas["handle_workspace"]}
        if func is aten.addmm.default and _has_epilogue(*args[:3]):
            # A cuBLASLt handle is a cuBLAS handle with an additional workspace.
            needed["cublaslt"] = self._cublas["lt_handle_workspace"]
        new = [library for library in needed if (library, thread) not in self._kept]
        self._kept.update((library, thread) for library in new)
        return [needed[library] for library in new]

    def order(self, func: Any, args: Any, outputs: int) -> Sequence[int]:
        """Return the positions of an operator's outputs in the order of their allocation.

        Args:
            func: The operator.
            args: Its positional arguments.
            outputs: Number of outputs.
        """
        if func is aten.convolution_backward.default and convolution.weight_first(args):
            return 1, 0, 2
        return (1, 0) if func is aten.native_dropout.default else range(outputs)

    def of(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> list[Request]:
        """Return what the operator allocates and frees in addition to its outputs.

        Args:
            func: The operator.
            args: Its positional arguments.
            kwargs: Its arguments by name.
            out: Its result.
        """
        if func is aten.convolution.default:
            return convolution.forward(args, out)
        if func is aten.convolution_backward.default:
            return convolution.backward(args, out)
        if func in SCRATCH:
            n_bytes = SCRATCH[func](args, out)
            return [Request(n_bytes=n_bytes, what=func.__name__)]
        if func in REDUCTIONS:
            dims = args[REDUCTIONS[func]] if len(args) > REDUCTIONS[func] else None
            n_bytes = reduction_bytes(args[0], dims) if args[0].device.type == "cuda" else 0
            return [Request(n_bytes=n_bytes, what="reduction")] if n_bytes else []
        return []


def _has_epilogue(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether a product with a bias is one cuBLASLt call (addmm_out_cuda_impl in aten/.../cuda/Blas.cpp)."""
    return bias.dim() == 1 and bias.is_contiguous() and b.shape[0] > 1 and b.shape[1] > 1
