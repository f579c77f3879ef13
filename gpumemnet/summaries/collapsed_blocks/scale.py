"""Scale the guessed outputs of hidden layers to torchinfo's total over all outputs.

Below its table torchinfo states the size of all outputs of layers with parameters, hidden ones included. What the
shown rows do not explain was made by hidden layers: what `expand` guessed of them is scaled to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from gpumemnet.names import Group
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import Layer, ModelSummary, Shape

ATTENTION = "Attention"
"""Class name around the layers of a guessed attention."""
FLOAT_BYTES = 4
_WITH_INSIDE = ("batchnormact2d", "layernormact2d", "groupnormact")
"""timm's norms hold their activation as a layer of its own."""
_TIED = (Group.CONV, Group.LINEAR, Group.EMBEDDING)
"""Layers whose parameters are never none, though tied ones have been taken out of the count."""
MOST = 64.0
"""A guess further off than this tells that the text was misread."""
STACKED = 1.5
MOST_TIMES = 32
"""Where hidden rows make more than this many times the guess, each is a stage of several blocks."""
CLOSE = 0.02
"""Within this share a guess need not be corrected."""
UNTOLD_PERCENT = 6400
"""Layers guessed to be hidden that had to be stretched this much: the text tells next to nothing of the model."""


class Stretch(NamedTuple):
    """How the guess of hidden layers is stretched in one pass over the text.

    Attributes:
        factor: What the bytes of guessed tensors are multiplied with.
        times: How many convolution blocks each hidden row stands for.
    """

    factor: float = 1.0
    times: int = 1

    @property
    def percent(self) -> int:
        """By how much the guess is stretched in all, times 100."""
        return round(100 * self.factor * self.times)

    def scaled(self, n_bytes: int) -> int:
        """Scale the bytes of a guessed tensor."""
        return n_bytes if self.factor == 1.0 else max(int(n_bytes * self.factor), 1)


@dataclass(slots=True, kw_only=True, eq=False)
class Outputs:
    """Elements of the outputs that torchinfo's total counts, summed up while a text is walked through.

    Attributes:
        shown: Of shown layers with parameters.
        guessed: Of guessed layers, batch norms and projections of attention left out.
        guessed_norms: Of guessed batch norms.
        guessed_attention: Of guessed projections.
        norms_uncounted: Batch norms have layers of their own inside, so torchinfo does not count them.
    """

    shown: int = 0
    guessed: int = 0
    guessed_norms: int = 0
    guessed_attention: int = 0
    norms_uncounted: bool = False

    def count(self, layer: Layer, elements: int, *, inside: bool) -> None:
        """Count an output if torchinfo does: that of a layer with parameters and without layers inside.

        Args:
            layer: The row.
            elements: Elements of its output.
            inside: Whether the row is a guess.
        """
        group = kinds.group_of(layer.kind)
        if layer.kind in _WITH_INSIDE:
            self.norms_uncounted = True
        elif not (layer.params or group in _TIED):
            return
        elif not inside:
            self.shown += elements
        elif group is Group.BATCHNORM:
            self.guessed_norms += elements
        elif group is Group.LINEAR and layer.path and layer.path[-1][0].endswith(ATTENTION):
            self.guessed_attention += elements
        else:
            self.guessed += elements


def better(stretch: Stretch, found: Outputs, summary: ModelSummary, batch: int) -> Stretch | None:
    """Return what to scale by in the next pass; None if the guess is good or nothing tells.

    Args:
        stretch: What this pass scaled by.
        found: What this pass counted.
        summary: The text.
        batch: Samples per step.
    """
    guessed = found.guessed + found.guessed_attention
    if stretch.factor != 1.0 or not guessed or not summary.output_bytes or not summary.batch_size:
        return None
    stated = summary.output_bytes // FLOAT_BYTES * batch // summary.batch_size
    left = max(stated - found.shown, 1)
    norms = 0 if found.norms_uncounted else found.guessed_norms
    # PyTorch's own attention is one module, whose projections are not counted: take what fits better.
    counts = [n for n in (found.guessed + norms + found.guessed_attention, found.guessed + norms) if n]
    factor = min((left / count for count in counts), key=lambda ratio: abs(math.log(ratio)))
    factor = min(max(factor, 1 / MOST), MOST)
    if stretch.times == 1 and factor >= STACKED:
        return Stretch(times=min(round(factor), MOST_TIMES))
    return None if abs(math.log(factor)) < CLOSE else Stretch(factor=factor, times=stretch.times)


def enclosing_shapes(layers: tuple[Layer, ...], block: Layer) -> tuple[Shape, ...]:
    """Return the output shapes of the container around a block that has none of its own (a ModuleList).

    Args:
        layers: All rows.
        block: The row.
    """
    if block.output_shapes or not block.path:
        return block.output_shapes
    around, (_, name) = block.path[:-1], block.path[-1]
    found = (layer for layer in layers if layer.is_block and layer.name == name and layer.path == around)
    return next((layer.output_shapes for layer in found if layer is not block and layer.output_shapes), ())
