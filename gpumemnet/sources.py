"""Which tensor a layer reads, when the text shows at most its shape."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from gpumemnet.kinds import Kind
from gpumemnet.summary import Layer
from gpumemnet.tape import Op

if TYPE_CHECKING:
    from gpumemnet.wiring import Wiring

_LOOK_BACK = 64
"""How many tensors back a branch may start."""
_SIDES = (3, 1, 5, 7, 2, 4, 11, 9, 16)
"""Kernel sizes, likeliest first."""
_SAME_SHAPE = ("batchnorm", "layernorm", "activation", "dropout")


def find(wiring: Wiring, layer: Layer, kind: Kind, out: tuple[int, ...]) -> int:
    """Find or make the tensor that a layer reads.

    Args:
        wiring: The tape so far.
        layer: The layer.
        kind: Its behaviour.
        out: Its output's shape, batch size applied.

    Returns:
        The tensor's number.
    """
    want = _wanted(wiring, layer, kind, out)
    current = wiring.current
    if current < 0:
        shape = want or _first_input(layer, kind, out)
        return wiring.tensor(shape, 8 if kind.group == "embedding" else wiring.high, constant=True)
    if kind.group == "embedding":
        return wiring.tensor(want or out[:-1], 8, constant=True)
    if want is None:
        return _for_convolution(wiring, layer, out) if kind.group == "conv" else current
    if kind.group == "activation" and wiring.shapes[current] == (*out[:-1], 2 * out[-1]):
        return current  # half of a gated feed-forward part's first layer; the other half is the gate
    if wiring.elements(current) == math.prod(want):
        return _gated_pair(wiring, want) if kind.group == "linear" else current
    gated = gate(wiring, want)
    if gated is not None:
        return gated
    return _branch(wiring, layer, want)


def _branch(wiring: Wiring, layer: Layer, want: tuple[int, ...]) -> int:
    """The input of a container it belongs to, the concatenation that fits, or the latest tensor of that shape."""
    for depth in range(len(layer.path), 0, -1):
        entry = wiring.entries.get(layer.path[:depth])
        if entry is not None and wiring.shapes[entry] == want:
            return entry
    last = wiring.shapes[wiring.current]
    same = [number for number in _recent(wiring) if wiring.shapes[number] == want]
    if (
        len(last) == len(want) == 4
        and wiring.current in wiring.loose
        and last[2:] == want[2:]
        and last[1] < want[1]
    ):
        rest = (want[0], want[1] - last[1], *want[2:])
        if layer.path and any(
            wiring.shapes[number] == rest for number in _recent(wiring) if number != wiring.current
        ):
            return joined(wiring, want)
    return same[0] if same else joined(wiring, want)


def unfolded(wiring: Wiring, layer: Layer, kind: Kind, out: tuple[int, ...]) -> tuple[int, ...]:
    """Undo what torchsummary hides: where windows are folded into the batch, it prints the batch as one dimension."""
    if wiring.summary.format != "torchsummary" or len(out) != 3 or wiring.current < 0:
        return out
    last = wiring.shapes[wiring.current]
    if len(last) < 3:
        return out
    reads = _fan_in(layer, out) if kind.group == "linear" else out[-1]
    if reads not in (last[-1], last[1] if len(last) == 4 else 0):
        return out
    factor, rest = divmod(wiring.elements(wiring.current) // max(reads, 1), max(out[0] * out[1], 1))
    return out if rest or factor < 2 else (out[0] * factor, *out[1:])


def _fan_in(layer: Layer, out: tuple[int, ...]) -> int:
    count = layer.params or 0
    if not out[-1] or not count:
        return 0
    per_output = count // out[-1]
    return per_output - 1 if count % out[-1] == 0 and per_output % 2 else per_output


def _gated_pair(wiring: Wiring, want: tuple[int, ...]) -> int:
    """A gated feed-forward part multiplies two branches (SwiGLU); the other one has been read by nobody yet."""
    current = wiring.current
    last = wiring.tape.ops[-1] if wiring.tape.ops else None
    if last and last.group == "activation" and wiring.shapes[last.inputs[0]] == (*want[:-1], 2 * want[-1]):
        return _product(wiring, want, last.inputs[0], current)
    makers = {op.output: op.group for op in wiring.tape.ops[-6:]}
    for number in range(current - 1, max(-1, current - 6), -1):
        if "activation" not in (makers.get(number), makers.get(current)):
            continue
        if number in wiring.loose and wiring.shapes[number] == want == wiring.shapes[current]:
            return _product(wiring, want, number, current)
    return current


def _product(wiring: Wiring, shape: tuple[int, ...], *factors: int) -> int:
    """Multiply tensors; all are kept."""
    made = wiring.tensor(shape, wiring.items[factors[-1]])
    wiring.add(Op(inputs=factors, output=made, saved=factors, group="function"))
    return made


def _recent(wiring: Wiring) -> list[int]:
    """Numbers of the latest tensors of real values, newest first."""
    last = len(wiring.shapes) - 1
    return [n for n in range(last, max(-1, last - _LOOK_BACK), -1) if wiring.items[n] in (2, 4)]


def joined(wiring: Wiring, shape: tuple[int, ...]) -> int:
    """A tensor that a function made of what was there: a concatenation, a reshape with copy, a sum over branches.

    If many vectors wait to be read and their concatenation is not what is wanted, they interact in pairs
    (recommenders): stacked, and kept for the matrix product.
    """
    current = wiring.current
    waiting = sorted(n for n in wiring.loose if n != current and len(wiring.shapes[n]) == 2 == len(shape))
    saved: tuple[int, ...] = ()
    source = current
    flat = len(wiring.shapes[current]) < 2
    if len(waiting) > 2 and not flat and sum(wiring.shapes[n][1] for n in (*waiting, current)) != shape[1]:
        source = wiring.tensor((shape[0], len(waiting) + 1, wiring.shapes[current][1]), wiring.items[current])
        wiring.add(Op(inputs=(*waiting, current), output=source, group="function"))
        saved, waiting = (source,), []
    made = wiring.tensor(shape, wiring.items[current])
    wiring.add(Op(inputs=(*waiting, source), output=made, saved=saved, group="function"))
    return made


def _rescaled(wiring: Wiring) -> int:
    """The product of the last, one-value-per-channel tensor with the latest picture of that many channels."""
    channels = wiring.shapes[wiring.current][1]
    for number in _recent(wiring):
        shape = wiring.shapes[number]
        if len(shape) > 2 and shape[1] == channels and math.prod(shape[2:]) > 1:
            return gate(wiring, shape) or wiring.current
    return wiring.current


def gate(wiring: Wiring, want: tuple[int, ...]) -> int | None:
    """Multiply by a gate: the last tensor holds one value per channel of the wanted one (squeeze and excitation)."""
    gate = wiring.shapes[wiring.current]
    if len(want) < 3 or math.prod(gate[1:]) not in (want[1], want[-1]) or not wiring.tape.ops:
        return None
    if wiring.tape.ops[-1].group not in ("activation", "linear", "conv"):
        return None
    for number in _recent(wiring):
        if wiring.shapes[number] == want:
            made = wiring.tensor(want, wiring.items[number])
            pair = (number, wiring.current)
            wiring.add(Op(inputs=pair, output=made, saved=pair, group="function"))
            return made
    return None


def _wanted(wiring: Wiring, layer: Layer, kind: Kind, out: tuple[int, ...]) -> tuple[int, ...] | None:
    """The input's shape, as far as the text or the kind of layer tells; None if neither does."""
    if layer.input_shapes:
        return wiring.scaled(layer.input_shapes[0])
    if kind.group in _SAME_SHAPE and layer.kind != "glu":
        return out
    if kind.group != "linear" or not layer.params or not out[-1]:
        return None
    fan_in = layer.params // out[-1]  # one more with a bias
    if wiring.current >= 0:
        shape = wiring.shapes[wiring.current]
        if {shape[-1], math.prod(shape) // max(math.prod(out[:-1]), 1)} & {fan_in, fan_in - 1}:
            return shape
        near = next((n for n in _recent(wiring) if wiring.shapes[n][-1] in (fan_in, fan_in - 1)), None)
        if near is not None and math.prod(wiring.shapes[near][:-1]) == math.prod(out[:-1]):
            return wiring.shapes[near]
    has_bias = layer.params % out[-1] == 0 and fan_in % 2 == 1
    return (*out[:-1], max(fan_in - has_bias, 1))


def _first_input(layer: Layer, kind: Kind, out: tuple[int, ...]) -> tuple[int, ...]:
    if kind.group == "embedding":
        return out[:-1]
    if kind.group == "conv" and layer.params and len(out) > 2 and out[1]:
        # Stems read 1 or 3 channels, at the output's resolution or, with a wide kernel, with a stride.
        dims, fan_in = len(out) - 2, layer.params // out[1]
        side = next((s for s in (7, 3, 5, 11, 4, 16, 14, 32, 1) if fan_in // s**dims in (1, 3)), 3)
        stride = {7: 2, 11: 4, 4: 4, 16: 16, 14: 14, 32: 32}.get(side, 1)
        return (out[0], max(fan_in // side**dims, 1), *(dim * stride for dim in out[2:]))
    return out


def _for_convolution(wiring: Wiring, layer: Layer, out: tuple[int, ...]) -> int:
    """Find the tensor a convolution reads when the text shows only its output and parameter count."""
    if not layer.params or len(out) < 3:
        return wiring.current
    dims = len(out) - 2
    grows = "transpose" in layer.kind
    last = wiring.shapes[wiring.current]
    if len(last) > 1 and math.prod(last[2:]) == 1 < math.prod(out[2:]) and not grows:
        wiring.current = _rescaled(wiring)
    shape = wiring.shapes[wiring.current]
    if len(shape) == len(out) and (grows or shape[2] >= out[2]):
        if shape[1] == out[1] and _is_depthwise(layer.params, out[1], dims):
            return wiring.current
        if _fits(layer.params, shape[1], out[1], dims, grouped=False):
            return wiring.current
    candidates = [wiring.current, *_recent(wiring)]
    for grouped in (False, True):
        for number in candidates:
            shape = wiring.shapes[number]
            if len(shape) != len(out) or (shape[2] < out[2] and not grows):
                continue
            if _fits(layer.params, shape[1], out[1], dims, grouped=grouped):
                return number
    fan_in = layer.params // max(out[1], 1)
    side = next(
        (s for s in _SIDES if fan_in // s**dims and (fan_in - fan_in % s**dims) in (fan_in, fan_in - 1)), 1
    )
    channels = max(fan_in // side**dims, 1)
    last = wiring.shapes[wiring.current]
    if len(last) > 1 and channels <= last[1]:
        return wiring.current
    return joined(wiring, (out[0], channels, *out[2:]))


@lru_cache(maxsize=4096)
def _is_depthwise(params: int, channels: int, dims: int) -> bool:
    areas = {side**dims for side in _SIDES if side > 1}
    return params in {channels * area for area in areas} | {channels * (area + 1) for area in areas}


@lru_cache(maxsize=4096)
def _fits(params: int, channels: int, out_channels: int, dims: int, *, grouped: bool) -> bool:
    """Tell whether a convolution of these channel counts can have this many parameters (kernels as wide as high)."""
    for weights in (params, params - out_channels):
        if weights <= 0 or not out_channels or weights % out_channels:
            continue
        fan_in = weights // out_channels
        for side in _SIDES:
            rest, remainder = divmod(fan_in, side**dims)
            if not remainder and rest and (rest == channels or (grouped and channels % rest == 0)):
                return True
    return False
