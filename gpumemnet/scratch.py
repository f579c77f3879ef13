"""What cuDNN holds beside a layer's own tensors: scratch for convolutions, gates and cells of recurrent layers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from gpumemnet import cudnn, plans, recurrent
from gpumemnet.summary import Layer

if TYPE_CHECKING:
    from gpumemnet.tape_builder import TapeBuilder


def convolution(builder: TapeBuilder, layer: Layer, source: int, out: tuple[int, ...]) -> None:
    """Note what cuDNN borrows for the last operation, a convolution.

    Args:
        builder: The tape so far.
        layer: The convolution's row.
        source: The tensor it reads.
        out: Its output's shape, batch size applied.
    """
    ins = builder.shapes[source]
    if len(ins) != len(out) or len(out) < 3 or not ins[1] or not out[1]:
        return
    forward, data, weight, fourier, grouped = _borrowed(
        ins, out, layer.params or 0, builder.low, layer.kind.startswith("convtranspose")
    )
    op, tape = builder.tape.ops[-1], builder.tape
    op.forward_workspace_bytes, op.data_workspace_bytes, op.weight_workspace_bytes = forward, data, weight
    tape.fourier_bytes = max(tape.fourier_bytes, fourier)
    tape.grouped += grouped


@lru_cache(maxsize=4096)
def _borrowed(
    ins: tuple[int, ...], out: tuple[int, ...], count: int, item_bytes: int, transposed: bool
) -> tuple[int, int, int, int, bool]:
    """Return the scratch of a convolution of this many parameters; a network has many layers of few shapes.

    Returns:
        Bytes for the forward, for the input's gradient, for the weight's, and by Fourier transform; whether it is
        grouped.
    """
    has_bias = count % out[1] == 0 and (count // out[1] - 1) % ins[1] == 0
    weights = count - out[1] if has_bias else count
    groups = cudnn.groups_of(weights, ins[1], out[1])
    if ins[1] % groups or out[1] % groups:
        groups = 1
    area = max(1, weights * groups // (ins[1] * out[1]))
    # A transposed convolution is the gradient of one, and its own gradient is that convolution.
    x, y = (out, ins) if transposed else (ins, out)
    strided = math.prod(x[2:]) >= 2 * math.prod(y[2:])
    forward, data, weight = (
        plans.workspace_bytes(
            plans.Plan(kind=kind, x=x, y=y, area=area, groups=groups, item_bytes=item_bytes, strided=strided)
        )
        for kind in (("data", "forward", "weight") if transposed else ("forward", "data", "weight"))
    )
    fourier = cudnn.fourier_bytes(x=ins, y=out, weights=weights, groups=groups)
    return forward, data, weight, fourier, groups > 1


def recurrent_reserve(builder: TapeBuilder, layer: Layer, source: int, out: tuple[int, ...]) -> None:
    """Add the one buffer in which cuDNN keeps gates and cells of all layers; arguments as for `convolution`."""
    kept = recurrent.reserve_elements(layer.kind, layer.params or 0, builder.shapes[source][-1], out)
    buffer = builder.tensor((kept,), builder.low)
    op = builder.tape.ops[-1]
    op.extra, op.saved = (*op.extra, buffer), (*op.saved, buffer)
    # The weights are copied into cuDNN's own order for each call.
    op.forward_workspace_bytes = op.data_workspace_bytes = (layer.params or 0) * builder.low
