"""What cuDNN's convolutions borrow for one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gpumemnet import cudnn
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


def workspace_bytes(call: Convolution) -> int:
    """Return the size of the workspace (see `gpumemnet.cudnn`); none where the channels are last already."""
    if call.channels_last:
        return 0
    return cudnn.workspace_bytes(
        call.kind,
        x=call.x,
        y=call.y,
        weights=math.prod(call.w),
        groups=call.groups,
        item_bytes=call.item_bytes,
        strided=max(call.stride) > 1,
        rows=call.w[0],
    )


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
