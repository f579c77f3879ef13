"""Scaled dot product attention on a Hopper GPU: by cuDNN, flash, the memory-efficient kernel or step by step.

PyTorch chooses in C++ by the device (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp); the choice is repeated
here. The limits of 128 and 256 are the largest head widths of cuDNN and flash.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpumemnet.tracing.trace.cuda.older import cudnn_attention_on, reduces_in_half

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)


class _SafeSoftmax(torch.autograd.Function):
    """Softmax with zeros where a whole row is masked: the kernel composes several others and keeps its result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        out = aten._softmax(x, dim, False)
        out.masked_fill_(x.eq(float("-inf")).all(dim, keepdim=True), 0.0)
        ctx.save_for_backward(out)
        ctx.dim = dim
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (result,) = ctx.saved_tensors
        return aten._softmax_backward_data(grads[0], result, ctx.dim, result.dtype), None


def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return the softmax of masked scores, as in plain attention.

    Args:
        x: Scores of any shape.
        dim: Dimension that sums to one.
        dtype: Type of the result; None for that of `x`.
    """
    out: Tensor = _SafeSoftmax.apply(x if dtype is None else x.to(dtype), dim)
    return out


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return scaled dot product attention by the backend of a Hopper GPU: cuDNN, flash, efficient or plain.

    Args:
        query: (batch, heads, length, width).
        key: (batch, heads, other length, width).
        value: (batch, heads, other length, width).
        attn_mask: Positions that may be seen, or values added to the scores; None for all.
        dropout_p: Share of dropped scores.
        is_causal: Whether later positions are hidden.
        scale: Factor of the scores; None for one over the root of the width.
        enable_gqa: Whether several query heads share one head of key and value.
    """
    backend = _backend(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    if backend == "math":
        return _plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    mask = attn_mask
    if mask is not None and mask.dtype == torch.bool:
        zero = torch.zeros((), dtype=query.dtype, device=query.device)
        mask = torch.where(mask, zero, torch.full((), float("-inf"), dtype=query.dtype, device=query.device))
    needs_grad = query.requires_grad or key.requires_grad or value.requires_grad
    if backend == "cudnn":
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, mask, needs_grad, dropout_p, is_causal, False, scale=scale
        )[0]
    if backend == "flash":
        size = query.shape[-1]
        scale = size**-0.5 if scale is None else scale
        query, key, value = (_padded(t) for t in (query, key, value))
        out = aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
        return out[..., :size] if size % 8 else out
    if mask is not None:
        mask = _aligned_mask(mask).expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, needs_grad, dropout_p, is_causal, scale=scale
    )[0]


def _plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    grouped: bool,
) -> Tensor:
    """Act as _scaled_dot_product_attention_math, but add the mask in place, as for plain tensors."""
    dtype = query.dtype
    if dtype in HALVES and not reduces_in_half():
        query, key, value = query.float(), key.float(), value.float()
    factor = (query.shape[-1] ** -0.5 if scale is None else abs(scale)) ** 0.5
    query = query * factor
    if is_causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        zero = torch.zeros((), dtype=query.dtype, device=query.device)
        mask = torch.where(mask, zero, torch.full((), float("-inf"), dtype=query.dtype, device=query.device))
    if grouped and key.shape[-3] < query.shape[-3]:
        shared = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(shared, -3), value.repeat_interleave(shared, -3)
    scores = torch.matmul(query, key.transpose(-2, -1) * factor)
    if mask is not None:
        scores.add_(mask)
    scores = aten._safe_softmax(scores, -1)
    if dropout_p:
        scores = torch.dropout(scores, dropout_p, True)
    return torch.matmul(scores, value).to(dtype)


def _backend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool, grouped: bool
) -> str:
    flags = torch.backends.cuda
    size = q.shape[-1]
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4 or 0 in (q.shape[2], k.shape[2]):
        return "math"
    # Nothing is broadcast; heads that share keys must be requested, and only cuDNN and flash support them.
    same_heads = q.shape[1] == k.shape[1] == v.shape[1]
    if not q.shape[0] == k.shape[0] == v.shape[0] or not (same_heads or grouped):
        return "math"
    # No fused kernel reads a mask by strides: T5's learned bias has the heads last.
    dense = all(t.stride(-1) == 1 for t in (q, k, v)) and (mask is None or mask.stride(-1) == 1)
    same = size == k.shape[-1] == v.shape[-1]
    learned_mask = mask is not None and mask.requires_grad and mask.dtype != torch.bool
    halves = q.dtype in HALVES and not learned_mask
    cudnn_ok = (
        halves
        and dense
        and cudnn_attention_on()
        and size % 8 == 0
        and size <= 128
        and v.shape[-1] % 8 == 0
        and v.shape[-1] <= 128
        and k.shape[2] > 1
        and (dropout_p == 0 or q.shape[2] > 1)
    )
    if cudnn_ok:
        return "cudnn"
    square = not is_causal or q.shape[2] == k.shape[2]
    if halves and dense and mask is None and same and size <= 256 and square and flags.flash_sdp_enabled():
        return "flash"
    unit = 8 if q.dtype in HALVES else 4
    aligned = size % unit == 0 and v.shape[-1] % unit == 0 and size == k.shape[-1]
    if (
        dense
        and same_heads
        and aligned
        and (q.dtype in HALVES or q.dtype == torch.float32)
        and flags.mem_efficient_sdp_enabled()
    ):
        return "efficient"
    return "math"


def _padded(x: Tensor) -> Tensor:
    """Pad head sizes to multiples of 8, as flash attention requires."""
    missing = -x.shape[-1] % 8
    return torch.nn.functional.pad(x, (0, missing)) if missing else x


def _aligned_mask(mask: Tensor) -> Tensor:
    """Align mask rows to 16 bytes, as the efficient kernel requires; a padded copy is kept and sliced."""
    unit = 8 if mask.element_size() == 2 else 4
    last = mask.shape[-1]
    if last % unit == 0:
        return mask
    return torch.nn.functional.pad(mask, (0, unit - last % unit))[..., :last]
