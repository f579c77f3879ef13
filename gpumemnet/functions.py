"""What functions make that no row shows: concatenations, products with a gate, sums over branches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumemnet.tape import Op

if TYPE_CHECKING:
    from gpumemnet.wiring import Wiring

_LOOK_BACK = 64
"""How many tensors back a branch may start."""


def recent(wiring: Wiring) -> list[int]:
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


def gate(wiring: Wiring, want: tuple[int, ...]) -> int | None:
    """Multiply by a gate: the last tensor holds one value per channel of the wanted one (squeeze and excitation)."""
    gate = wiring.shapes[wiring.current]
    if len(want) < 3 or math.prod(gate[1:]) not in (want[1], want[-1]) or not wiring.tape.ops:
        return None
    if wiring.tape.ops[-1].group not in ("activation", "linear", "conv"):
        return None
    for number in recent(wiring):
        if wiring.shapes[number] == want:
            made = wiring.tensor(want, wiring.items[number])
            pair = (number, wiring.current)
            wiring.add(Op(inputs=pair, output=made, saved=pair, group="function"))
            return made
    return None


def rescaled(wiring: Wiring) -> int:
    """The product of the last, one-value-per-channel tensor with the latest picture of that many channels."""
    channels = wiring.shapes[wiring.current][1]
    for number in recent(wiring):
        shape = wiring.shapes[number]
        if len(shape) > 2 and shape[1] == channels and math.prod(shape[2:]) > 1:
            return gate(wiring, shape) or wiring.current
    return wiring.current


def gated_pair(wiring: Wiring, want: tuple[int, ...]) -> int:
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
