"""Determine the workspaces of a convolution in a summary, whose row shows only shapes and a parameter count."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from gpumemnet.gpu_memory.cudnn import conv_geometry, conv_workspace
from gpumemnet.names import ConvPass


class ConvMemory(NamedTuple):
    """cuDNN's memory in addition to a convolution's tensors.

    Attributes:
        forward_bytes: Workspace of the forward pass.
        data_bytes: Workspace of the input's gradient.
        weight_bytes: Workspace of the weight's gradient.
        fourier_bytes: Memory of a Fourier transform, should cuDNN choose one.
        grouped: Whether the convolution has groups.
    """

    forward_bytes: int = 0
    data_bytes: int = 0
    weight_bytes: int = 0
    fourier_bytes: int = 0
    grouped: bool = False


_NOTHING = ConvMemory()
_TRANSPOSED = (ConvPass.DATA, ConvPass.FORWARD, ConvPass.WEIGHT)


@lru_cache(maxsize=4096)
def memory(
    ins: tuple[int, ...], out: tuple[int, ...], params: int, item_bytes: int, transposed: bool
) -> ConvMemory:
    """Return the workspaces of a convolution; cached, as a network has many layers of few shapes.

    Args:
        ins: Shape of its input: batch, channels, sides.
        out: Shape of its output.
        params: Elements of its weight and bias.
        item_bytes: Bytes per element in the computation.
        transposed: Whether it is a transposed convolution.

    Returns:
        The workspaces; nothing if the shapes are not those of a convolution.
    """
    if len(ins) != len(out) or len(out) < 3 or not ins[1] or not out[1]:
        return _NOTHING
    has_bias = params % out[1] == 0 and (params // out[1] - 1) % ins[1] == 0
    weights = params - out[1] if has_bias else params
    groups = conv_geometry.groups_of(weights, ins[1], out[1])
    if ins[1] % groups or out[1] % groups:
        groups = 1
    area = max(1, weights * groups // (ins[1] * out[1]))
    # A transposed convolution is the gradient of a convolution, which is in turn its gradient.
    x, y = (out, ins) if transposed else (ins, out)
    strided = math.prod(x[2:]) >= 2 * math.prod(y[2:])
    forward, data, weight = (
        conv_workspace.workspace_bytes(
            conv_workspace.ConvolutionPlan(
                kind=kind, x=x, y=y, area=area, groups=groups, item_bytes=item_bytes, strided=strided
            )
        )
        for kind in (_TRANSPOSED if transposed else tuple(ConvPass))
    )
    return ConvMemory(
        forward_bytes=forward,
        data_bytes=data,
        weight_bytes=weight,
        fourier_bytes=conv_geometry.fourier_bytes(x=ins, y=out, weights=weights, groups=groups),
        grouped=groups > 1,
    )
