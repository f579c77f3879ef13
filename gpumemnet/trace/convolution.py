"""What cuDNN's convolutions borrow for one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gpumemnet.trace.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One call of cuDNN.

    Attributes:
        kind: "forward", "data" or "weight".
        x: Shape of the input.
        w: Shape of the weight.
        y: Shape of the output.
        item_bytes: Bytes per element.
        stride: Per dimension.
        dilation: Per dimension.
        groups: Number of groups.
        transposed: Whether it is a transposed convolution.
        channels_last: Whether the input is stored so.
    """

    kind: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    item_bytes: int
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool
    channels_last: bool


INT32_MAX = (1 << 31) - 1
TILE = 128
"""Rows and columns of the output that one thread block computes."""
BLOCKS = 2 * 132
"""Blocks that cuDNN aims at: two for each multiprocessor of an H200. Found by trying against 70 measured CNNs."""
PIXELS_PER_SLICE = 512
"""Least length of a part of the sum; found in the same way."""


def workspace_bytes(call: Convolution) -> int:
    """Return the size of the workspace.

    cuDNN's tensor core kernels want the channels last. For tensors in PyTorch's default order its heuristics choose
    kernels that first copy input, weight and output (or its gradient) into that order, in the workspace: on an H200
    the peaks of runs with 3x3 and larger kernels differ by just these three tensors. Depthwise kernels run in place,
    and so do kernels of one pixel, except backward through those with a stride.
    """
    depthwise = call.groups > 1 and call.groups == call.x[1]
    one_pixel = math.prod(call.w[2:]) == 1 and (call.kind == "forward" or max(call.stride) == 1)
    if depthwise or one_pixel or call.channels_last:
        return 0
    x, w, y = (call.item_bytes * math.prod(shape) for shape in (call.x, call.w, call.y))
    if max(x, y) > INT32_MAX * call.item_bytes:
        # Indices beyond 32 bits: another kernel, which copies one of the two.
        return max(x, y)
    partial = _slices(call) * 4 * math.prod(call.w) if call.kind == "weight" else 0
    return x + w + y + partial


def _slices(call: Convolution) -> int:
    """Return into how many parts the sum of a weight gradient is cut, each with a copy of its own in fp32.

    With few tiles of output there would be too little to do for the GPU, so cuDNN cuts the sum over pixels until
    each multiprocessor has about two blocks.
    """
    tiles = math.ceil(call.w[0] / call.groups / TILE) * math.ceil(math.prod(call.w[1:]) / TILE) * call.groups
    pixels = call.y[0] * math.prod(call.y[2:])
    slices = min(BLOCKS // tiles, pixels // PIXELS_PER_SLICE)
    return slices if slices > 1 else 0


def forward(args: Any, out: Tensor) -> list[Request]:
    """aten.convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)."""
    x, w, _, stride, _, dilation, transposed, _, groups = args
    call = _call("forward", x, w, out, stride, dilation, groups, transposed)
    return [Request(n_bytes=workspace_bytes(call), after_output=0, what=call)]


def backward(args: Any, out: Any) -> list[Request]:
    """aten.convolution_backward(grad, input, weight, bias_sizes, stride, padding, dilation, transposed, ...)."""
    grad, x, w, _, stride, _, dilation, transposed, _, groups, _ = args
    requests = []
    for index, kind in ((0, "data"), (1, "weight")):
        if out[index] is not None:
            call = _call(kind, x, w, grad, stride, dilation, groups, transposed)
            requests.append(Request(n_bytes=workspace_bytes(call), after_output=index, what=call))
    return requests


def _call(
    kind: str, x: Tensor, w: Tensor, y: Tensor, stride: Any, dilation: Any, groups: int, transposed: bool
) -> Convolution:
    return Convolution(
        kind=kind,
        x=tuple(x.shape),
        w=tuple(w.shape),
        y=tuple(y.shape),
        item_bytes=x.element_size(),
        stride=tuple(stride),
        dilation=tuple(dilation),
        groups=groups,
        transposed=transposed,
        channels_last=x.dim() > 2 and x.stride(1) == 1 and x.shape[1] > 1,
    )
