"""Costs that layers with weights add to their operation: workspaces, cuDNN's reserves, multiply-adds."""

from __future__ import annotations

import math

from gpumemnet.gpu_memory.cudnn import conv_layer, reduction, rnn_reserve
from gpumemnet.names import Group
from gpumemnet.summaries.graph.builder import TapeBuilder
from gpumemnet.summaries.texts.kinds import Kind
from gpumemnet.summaries.texts.records import Layer

GROUPS = frozenset((Group.CONV, Group.LINEAR, Group.RNN))
"""Groups that multiply by weights, in 16 bits under autocast."""
_STANDARDISED = "stdconv2d"
"""Part of the names of convolutions whose weight is normalized at each step, into a kept tensor (BiT, NF-Net)."""
_CHANNELS_SECOND = frozenset((Group.CONV, Group.BATCHNORM))


def add(builder: TapeBuilder, layer: Layer, kind: Kind, source: int, out: tuple[int, ...]) -> None:
    """Record a layer's memory apart from input and output; its operation is the last on the tape.

    Args:
        builder: The tape so far.
        layer: The row.
        kind: Its kind, of one of GROUPS.
        source: The tensor it reads.
        out: Shape of its output, batch size applied.
    """
    if layer.params:
        builder.count(_mult_adds(kind, layer, builder.elements[source], out))
    if kind.group is Group.LINEAR:
        _linear(builder, layer, source, out)
    if kind.group is Group.RNN:
        _recurrent(builder, layer, source, out)
    elif kind.group is Group.CONV:
        _convolution(builder, layer, source, out)
    if builder.amp:
        builder.tape.cast_bytes += (layer.params or 0) * 2


def channels(kind: Kind, out: tuple[int, ...]) -> int:
    """Return the number of channels or features that a layer makes; 0 if its output has none.

    Args:
        kind: The layer's kind.
        out: Shape of its output: batch first, channels second (convolutions, batch norms) or features last.
    """
    if kind.group in _CHANNELS_SECOND:
        return out[1] if len(out) > 1 else 0
    return out[-1] if out else 0


def _linear(builder: TapeBuilder, layer: Layer, source: int, out: tuple[int, ...]) -> None:
    """Record the buffer in which the gradient of a bias is summed over all rows."""
    features = out[-1] if out else 0
    if features and layer.trainable and (layer.params or 0) == features * (builder.shapes[source][-1] + 1):
        rows = math.prod(out[:-1])
        builder.tape.ops[-1].weight_workspace_bytes = reduction.row_sums_bytes(rows, features)


def _convolution(builder: TapeBuilder, layer: Layer, source: int, out: tuple[int, ...]) -> None:
    """Record the workspaces of the last operation, a convolution."""
    ins = builder.shapes[source]
    if source in builder.parted and layer.input_shapes:
        ins = builder.scaled(layer.input_shapes[0])
    memory = conv_layer.memory(
        ins, out, layer.params or 0, builder.low, layer.kind.startswith("convtranspose")
    )
    op, tape = builder.tape.ops[-1], builder.tape
    if _STANDARDISED in layer.kind:
        weight = builder.tensor((layer.params or 0,), builder.low)
        op.extra, op.saved = (*op.extra, weight), (*op.saved, weight)
    op.forward_workspace_bytes = memory.forward_bytes
    op.data_workspace_bytes, op.weight_workspace_bytes = memory.data_bytes, memory.weight_bytes
    tape.fourier_bytes = max(tape.fourier_bytes, memory.fourier_bytes)
    tape.grouped += memory.grouped


def _recurrent(builder: TapeBuilder, layer: Layer, source: int, out: tuple[int, ...]) -> None:
    """Add the one buffer in which cuDNN keeps gates and cells of the last operation, a recurrent layer."""
    params = layer.params or 0
    kept = rnn_reserve.reserve_elements(layer.kind, params, builder.shapes[source][-1], out)
    buffer = builder.tensor((kept,), builder.low)
    op = builder.tape.ops[-1]
    op.extra, op.saved = (*op.extra, buffer), (*op.saved, buffer)
    # The weights are copied into cuDNN's order for each call.
    op.forward_workspace_bytes = op.data_workspace_bytes = params * builder.low


def _mult_adds(kind: Kind, layer: Layer, read: int, out: tuple[int, ...]) -> int:
    """Return the multiply-adds of a layer that applies every weight once per position.

    Args:
        kind: Its kind.
        layer: The row.
        read: Elements of its input.
        out: Shape of its output.
    """
    params = layer.params or 0
    if layer.kind.startswith("convtranspose"):
        # Each input position meets the weights, which are divided among the output's channels.
        return read * params // max(_in_channels(layer, out), 1)
    return math.prod(out) * params // max(channels(kind, out), 1)


def _in_channels(layer: Layer, out: tuple[int, ...]) -> int:
    shape = layer.input_shapes[0] if layer.input_shapes else ()
    known = shape[1] if len(shape) > 1 else None
    if known:
        return known
    given = layer.args.get("in_channels")
    return given if isinstance(given, int) else max(out[1] if len(out) > 1 else 1, 1)
