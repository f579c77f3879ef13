"""Find the tensor that a layer reads; the text shows at most its shape."""

from __future__ import annotations

import math

from gpumemnet.names import Group, Source
from gpumemnet.summaries.graph import branches, conv_inputs, functional_ops, slices, stems
from gpumemnet.summaries.graph.builder import TapeBuilder
from gpumemnet.summaries.texts.kinds import Kind
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.summaries.texts.widths import fan_in

_IMAGE = 4
"""Dimensions of a batch of images."""
_COLOURS = (3, 1)
_SAME_SHAPE = (Group.BATCHNORM, Group.LAYERNORM, Group.ACTIVATION, Group.DROPOUT)


def find(builder: TapeBuilder, layer: Layer, kind: Kind, out: tuple[int, ...]) -> int:
    """Find or make the tensor that a layer reads.

    Args:
        builder: The tape so far.
        layer: The layer.
        kind: Its behaviour.
        out: Its output's shape, batch size applied.

    Returns:
        The tensor's number.
    """
    want = _wanted(builder, layer, kind, out)
    start = branches.start(builder, layer, kind, want, out)
    if start is not None:
        return start
    current = builder.current
    if current < 0:
        shape = want or _first_input(builder, layer, kind, out)
        return builder.tensor(shape, 8 if kind.group is Group.EMBEDDING else builder.high, constant=True)
    if kind.group is Group.EMBEDDING:
        return builder.tensor(want or out[:-1], 8, constant=True)
    if want is None:
        return _unshown(builder, layer, out) if kind.group is Group.CONV else current
    if kind.group is Group.ACTIVATION and builder.shapes[current] == (*out[:-1], 2 * out[-1]):
        return current  # half of a gated feed-forward part's first layer; the other half gates it
    if builder.elements[current] == math.prod(want):
        if kind.group is Group.LINEAR:
            pair = functional_ops.gated_pair(builder, want)
            whole = slices.read(builder, layer, want, begun=True) if pair == current else None
            return pair if whole is None else functional_ops.multiplied(builder, want, whole, current)
        if kind.group is Group.LAYERNORM:
            return functional_ops.gated_pair(builder, want)
        return branches.product(builder, layer, want) if kind.group is Group.CONV else current
    gated = functional_ops.gate(builder, want)
    if gated is not None:
        return gated
    return _branch(builder, layer, want)


def _unshown(builder: TapeBuilder, layer: Layer, out: tuple[int, ...]) -> int:
    """Return the input of a convolution whose row shows only its output."""
    found = conv_inputs.find(builder, layer, out)
    return branches.product(builder, layer, builder.shapes[found]) if found == builder.current else found


def _branch(builder: TapeBuilder, layer: Layer, want: tuple[int, ...]) -> int:
    """Return the input of an enclosing container, the concatenation that fits, or the latest tensor of that shape."""
    if slices.by_channel(layer, want) and (whole := slices.read(builder, layer, want)) == builder.current:
        return whole
    for depth in range(len(layer.path), 0, -1):
        entry = builder.entries.get(layer.path[:depth])
        if entry is not None and builder.shapes[entry] == want:
            return entry
    if (whole := slices.of_entry(builder, layer, want)) is not None:
        return whole
    if (whole := slices.read(builder, layer, want)) is not None:
        return whole
    last = builder.shapes[builder.current]
    same = [number for number in functional_ops.recent(builder) if builder.shapes[number] == want]
    if (
        len(last) == len(want) == 4
        and builder.current in builder.loose
        and last[2:] == want[2:]
        and last[1] < want[1]
    ):
        rest = (want[0], want[1] - last[1], *want[2:])
        if layer.path and any(
            builder.shapes[number] == rest
            for number in functional_ops.recent(builder)
            if number != builder.current
        ):
            return functional_ops.joined(builder, want)
    # Slices that were read are joined again from their results.
    return same[0] if same and same[0] not in builder.parted else functional_ops.joined(builder, want)


def unfolded(builder: TapeBuilder, layer: Layer, kind: Kind, out: tuple[int, ...]) -> tuple[int, ...]:
    """Undo a loss in torchsummary: with windows folded into the batch, it prints the batch as one dimension.

    Args:
        builder: The tape so far.
        layer: The row.
        kind: Its behaviour.
        out: Shape of its output as printed, batch size applied.
    """
    if builder.format != Source.TORCHSUMMARY or builder.current < 0:
        return out
    last = builder.shapes[builder.current]
    if kind.group is Group.BATCHNORM and len(out) == 2 < len(last) and out[-1] == last[-1]:
        return (math.prod(last[:-1]), out[-1])
    if kind.group is Group.CONV and len(out) == _IMAGE and len(last) == 3 and len(builder.tape.ops) == 1:
        patches = _patches(layer, last, out)
        builder.patches = (patches, math.prod(out[2:])) if patches > 1 else builder.patches
        return (out[0] * patches, *out[1:])
    if len(out) != 3 or len(last) < 3:
        return out
    if layer.kind == "unfold" and len(last) == _IMAGE and not out[1] % last[1]:
        builder.patches = (out[2], out[1] // last[1])
    if builder.patches and out[1] == builder.patches[1]:
        return (out[0] * builder.patches[0], *out[1:])
    reads = fan_in(layer.params, out[-1]) if kind.group is Group.LINEAR else out[-1]
    if reads not in (last[-1], last[1] if len(last) == _IMAGE else 0):
        return out
    factor, rest = divmod(builder.elements[builder.current] // max(reads, 1), max(out[0] * out[1], 1))
    return out if rest or factor < 2 else (out[0] * factor, *out[1:])


def _patches(layer: Layer, cut: tuple[int, ...], out: tuple[int, ...]) -> int:
    """Return the number of square patches (nn.Unfold) that a convolution reads one by one; else 1.

    Args:
        layer: The convolution.
        cut: Its input: batch, pixels and channels of a patch, patches.
        out: Its output for one patch.
    """
    for channels in _COLOURS:
        side = math.isqrt(cut[1] // channels)
        if channels * side * side == cut[1] and side >= out[-1] and not side % out[-1]:
            return cut[2] if conv_inputs.can_read(layer, (out[0], channels, side, side), out) else 1
    return 1


def _wanted(builder: TapeBuilder, layer: Layer, kind: Kind, out: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the input's shape, as far as the text or the kind of layer shows; None if neither does."""
    if layer.input_shapes:
        return builder.scaled(layer.input_shapes[0])
    if kind.group in _SAME_SHAPE and layer.kind != "glu":
        return out
    if kind.group is not Group.LINEAR or not layer.params or not out[-1]:
        return None
    each = layer.params // out[-1]  # features, and one more with a bias
    if builder.current >= 0:
        shape = builder.shapes[builder.current]
        if {shape[-1], math.prod(shape) // max(math.prod(out[:-1]), 1)} & {each, each - 1}:
            return shape
        near = next(
            (n for n in functional_ops.recent(builder) if builder.shapes[n][-1] in (each, each - 1)), None
        )
        if near is not None and math.prod(builder.shapes[near][:-1]) == math.prod(out[:-1]):
            return builder.shapes[near]
    return (*out[:-1], max(fan_in(layer.params, out[-1]), 1))


def _first_input(builder: TapeBuilder, layer: Layer, kind: Kind, out: tuple[int, ...]) -> tuple[int, ...]:
    if kind.group is Group.EMBEDDING:
        return out[:-1]
    if kind.group is Group.CONV and layer.params and len(out) > 2 and out[1]:
        # Stems read 1 or 3 channels.
        dims, each = len(out) - 2, layer.params // out[1]
        side = next((s for s in (7, 3, 5, 11, 4, 16, 14, 32, 1) if each // s**dims in (1, 3)), 3)
        channels = max(each // side**dims, 1)
        return stems.image(builder, channels, out, side) or stems.usual_image(channels, out, side)
    return out
