"""Workspace of one call of a cuDNN convolution."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gpumemnet.gpu_memory.cudnn import conv_fourier, conv_workspace
from gpumemnet.names import ConvPass
from gpumemnet.records import frozen
from gpumemnet.tracing.trace.recording.request import Request

_SWAPPED = {ConvPass.FORWARD: ConvPass.DATA, ConvPass.DATA: ConvPass.FORWARD}


@frozen
class Convolution:
    """One call of cuDNN.

    Attributes:
        kind: The pass.
        x: Shape of the input.
        w: Shape of the weight.
        y: Shape of the output.
        item_bytes: Bytes per element.
        stride: Per dimension.
        dilation: Per dimension.
        groups: Number of groups.
        transposed: Whether it is a transposed convolution.
        channels_last: Whether the input is stored with channels last.
    """

    kind: ConvPass
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
    """Return the size of the workspace (see `conv_workspace`); with channels last nothing is copied."""
    if call.channels_last:
        depthwise = call.x[1] == call.groups > 1 and len(call.x) == 4
        return (
            conv_workspace.depthwise_parts(call.x, call.w, call.item_bytes)
            if depthwise and call.kind == ConvPass.WEIGHT
            else 0
        )
    kind, x, y = call.kind, call.x, call.y
    if _plain_gradient(call) and conv_fourier.within(conv_fourier.CHOSEN, x, call.w, y):
        return conv_fourier.fourier_bytes(x, call.w, y)
    if call.transposed:
        # The gradient of a convolution; its gradient is that convolution.
        kind, x, y = _SWAPPED.get(kind, kind), y, x
    plan = conv_workspace.ConvolutionPlan(
        kind=kind,
        x=x,
        y=y,
        area=math.prod(call.w[2:]),
        groups=call.groups,
        item_bytes=call.item_bytes,
        strided=max(call.stride) > 1,
    )
    return conv_workspace.workspace_bytes(plan)


def possible_bytes(call: Convolution) -> int:
    """Return the largest workspace that cuDNN may take; 0 if no kernel of its choice is known to take more."""
    if _plain_gradient(call) and conv_fourier.within(conv_fourier.POSSIBLE, call.x, call.w, call.y):
        return conv_fourier.fourier_bytes(call.x, call.w, call.y)
    return 0


def _plain_gradient(call: Convolution) -> bool:
    """Tell whether it is the gradient of a weight in fp32, of one group, for pictures in PyTorch's default order."""
    return (
        call.kind == ConvPass.WEIGHT
        and (call.item_bytes, call.groups, max(call.stride), max(call.dilation)) == (4, 1, 1, 1)
        and not call.transposed
        and not call.channels_last
    )


def weight_first(args: Any) -> bool:
    """Return whether backward makes the weight's gradient before the input's, as PyTorch's depthwise kernel does.

    cuDNN runs depthwise convolutions only with channels last and, in fp16, for the sizes that ATen has measured
    (use_cudnn_depthwise and check_cudnn_depthwise_workload_with_filter in aten/src/ATen/native/Convolution.cpp).
    """
    _, x, w, _, stride, _, dilation, transposed, _, groups, _ = args
    if (
        transposed
        or not x.shape[1] == groups > 1
        or w.shape[1] != 1
        or _channels_last(x)
        or _channels_last(w)
    ):
        return False
    cudnn = x.dtype == torch.float16 and x.dim() == 4 and max(dilation) == 1 and len(set(stride)) == 1
    return not (cudnn and _cudnn_is_faster(x, w, stride[0]))


def _cudnn_is_faster(x: Tensor, w: Tensor, stride: int) -> bool:
    batch, channels, _, width = x.shape
    area, side = w.shape[2:].numel(), w.shape[3]
    if channels < 32 or area != side * side or side not in (1, 3, 5) or width < 7 or stride not in (1, 2):
        return False
    if batch == 1:
        return side > 1 or width <= 28
    if side == 1:
        return batch <= 16 and channels >= 128 and width <= 7
    return channels >= 512 or (channels >= 256 and width >= 28)


def forward(args: Any, out: Tensor) -> list[Request]:
    """Requests of aten.convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups).

    Args:
        args: Positional arguments of the operator.
        out: Its result.
    """
    x, w, _, stride, _, dilation, transposed, _, groups = args
    call = _call(ConvPass.FORWARD, x, w, out, stride, dilation, groups, transposed)
    return [*_copies(x, w, x), Request(n_bytes=workspace_bytes(call), after_output=0, what=call)]


def backward(args: Any, out: Any) -> list[Request]:
    """Requests of aten.convolution_backward(grad, input, weight, bias_sizes, stride, padding, dilation, ...).

    Args:
        args: Positional arguments of the operator.
        out: Its result.
    """
    grad, x, w, _, stride, _, dilation, transposed, _, groups, _ = args
    requests = _copies(x, w, *((x, grad) if out[1] is not None else (grad,)))
    for index, kind in ((0, ConvPass.DATA), (1, ConvPass.WEIGHT)):
        if out[index] is not None:
            call = _call(kind, x, w, grad, stride, dilation, groups, transposed)
            requests.append(Request(n_bytes=workspace_bytes(call), after_output=index, what=call))
    return requests


def _call(
    kind: ConvPass, x: Tensor, w: Tensor, y: Tensor, stride: Any, dilation: Any, groups: int, transposed: bool
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
        channels_last=_channels_last(x),
    )


def _copies(x: Tensor, w: Tensor, *tensors: Tensor) -> list[Request]:
    """Return copies of views, which are copied whole; with channels last this is undecided."""
    if _channels_last(x) or (_channels_last(w) and not w.is_contiguous()):
        return []
    return [
        Request(n_bytes=tensor.numel() * tensor.element_size(), throughout=True, what="copy")
        for tensor in tensors
        if not tensor.is_contiguous()
    ]


def _channels_last(x: Tensor) -> bool:
    return x.dim() > 2 and x.stride(1) == 1 and x.shape[1] > 1
