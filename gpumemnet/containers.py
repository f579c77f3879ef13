"""Containers in the text: where one ends, and what the inside of one does that the text does not show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumemnet import functions, kinds, sources
from gpumemnet.hidden import enclosing_shapes
from gpumemnet.idle import is_idle
from gpumemnet.summary import Layer
from gpumemnet.tape import Op

if TYPE_CHECKING:
    from gpumemnet.wiring import Wiring


def block(wiring: Wiring, layer: Layer) -> None:
    """A container's row: its inside, if the text does not show that; else its end."""
    if not layer.params:
        _ended(wiring, layer)
        return
    stated = layer.output_shapes or enclosing_shapes(wiring.summary.layers, layer)
    if wiring.summary.format == "torchsummary" or (wiring.current < 0 and not stated):
        wiring.parameters(layer)
        return
    from gpumemnet import expand  # few texts need it

    outs = wiring.scaled(stated[0]) if stated else wiring.shapes[wiring.current]
    ins = wiring.scaled(layer.input_shapes[0]) if layer.input_shapes else outs
    if not layer.input_shapes and wiring.current >= 0:
        ins = wiring.shapes[wiring.current]
    shown = wiring.summary.layers
    activation = expand.activation_of(shown, tokens=len(outs) == 3)
    inside = expand.expand(
        layer,
        ins,
        outs,
        activation,
        dropout=any(kinds.group_of(other.kind) == "dropout" and not is_idle(other) for other in shown),
        layernorm=expand.has_layernorm(shown),
        times=wiring.hidden.times,
    )
    wiring.tape.guessed += len(inside)
    # What `expand` made has the batch size applied already.
    printed, wiring.printed = wiring.printed, None
    wiring.guess = wiring.hidden
    wiring.layers(inside)
    wiring.printed = printed
    wiring.guess = None


def _ended(wiring: Wiring, layer: Layer) -> None:
    """The end of a container adds a sum, which keeps nothing new; it may hand on more than its last layer made."""
    if wiring.current < 0 or not layer.output_shapes:
        return
    out = sources.unfolded(wiring, layer, kinds.KINDS["identity"], wiring.scaled(layer.output_shapes[0]))
    same = wiring.elements[wiring.current] == math.prod(out)
    if len(out) > 2 and not same:
        wiring.current = functions.gate(wiring, out) or functions.joined(wiring, out)
    elif same and layer.args.get("own_params") in out[1:2] + out[-1:]:
        # One parameter per channel: the output is scaled by it (LayerScale), which keeps the unscaled one.
        scaled = wiring.tensor(wiring.shapes[wiring.current], wiring.items[wiring.current])
        wiring.add(Op(inputs=(wiring.current,), output=scaled, saved=(wiring.current,), group="function"))
        wiring.current = scaled
