"""Autocast for fake CUDA tensors, as PyTorch's C++ applies it to real ones.

The C++ kernels cast only tensors that C++ sees on a CUDA device (`is_autocast_eligible`), so for fake tensors the
same rules are applied here: the lists of ATen/autocast_mode.h, with the cache of cast weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map

from gpumemnet.tracing.trace.cuda.older import autocast_dtype, destroy


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LOWER_PRECISION = _names("""
    _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linear addbmm baddbmm
    bmm chain_matmul linalg_multi_dot lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    scaled_dot_product_attention
""")
FULL_PRECISION = _names("""
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm
    cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss
    soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist
    cdist renorm logsumexp upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d
    upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
""")
FULL_PRECISION_BY_DTYPE = _names("""
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    sum sum.dim_IntList
""")
WIDEST = _names("""
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
""")

_cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cuda"
        and value.is_floating_point()
        and value.dtype != torch.float64
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if not _eligible(value) or value.dtype == dtype:
        return value
    lower = autocast_dtype()
    cached = (
        dtype == lower
        and value.dtype == torch.float32
        and value.requires_grad
        and value.is_leaf
        and not value._is_view()
        and torch.is_autocast_cache_enabled()
    )
    if not cached:
        return value.to(dtype)
    if id(value) not in _cache:
        # Keep the weight as well, so that its id is not reused by another tensor.
        _cache[id(value)] = (value, value.to(dtype))
    return _cache[id(value)][1]


def _widest(args: Any, kwargs: Any) -> torch.dtype:
    dtype = autocast_dtype()
    found: list[torch.dtype] = []
    tree_map(lambda v: found.append(v.dtype) if _eligible(v) else None, (args, kwargs))
    return torch.float32 if torch.float32 in found else dtype


def _kernel(op: Any, dtype_of: Callable[[Any, Any], torch.dtype]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._DisableAutocast():
            dtype = dtype_of(args, kwargs)
            args, kwargs = tree_map(lambda v: _cast(v, dtype), (args, kwargs))
            return op(*args, **kwargs)

    return kernel


def _by_dtype(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._DisableAutocast():
            if (
                kwargs.get("dtype") is None
                and not any(isinstance(a, torch.dtype) for a in args)
                and _eligible(args[0])
            ):
                kwargs = {**kwargs, "dtype": torch.float32}
            return op(*args, **kwargs)

    return kernel


def _operator(name: str) -> Any:
    """Return the overload, or None if this PyTorch lacks it."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return None if packet is None else getattr(packet, overload or "default", None)


@contextmanager
def registered() -> Iterator[None]:
    """Replace CUDA's autocast kernels; the cache is emptied when the outermost `torch.autocast` is left."""
    library = torch.library.Library("aten", "IMPL")
    rules: list[tuple[tuple[str, ...], Callable[[Any], Callable[..., Any]]]] = [
        (LOWER_PRECISION, lambda op: _kernel(op, lambda *_: autocast_dtype())),
        (FULL_PRECISION, lambda op: _kernel(op, lambda *_: torch.float32)),
        (FULL_PRECISION_BY_DTYPE, _by_dtype),
        (WIDEST, lambda op: _kernel(op, _widest)),
    ]
    for names, make in rules:
        for name in names:
            operator = _operator(name)
            if operator is not None:
                library.impl(name, make(operator), "AutocastCUDA", **_override)
    clear = torch.clear_autocast_cache

    def clear_both() -> None:
        _cache.clear()
        clear()

    torch.clear_autocast_cache = clear_both
    try:
        yield
    finally:
        torch.clear_autocast_cache = clear
        _cache.clear()
        destroy(library)


def _override_argument() -> dict[str, bool]:
    """PyTorch 2.9 and later require a flag for replacing a kernel on purpose."""
    import inspect

    return (
        {"allow_override": True}
        if "allow_override" in inspect.signature(torch.library.Library.impl).parameters
        else {}
    )


_override = _override_argument()
