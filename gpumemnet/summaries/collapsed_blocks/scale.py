"""Scale the guessed outputs of hidden layers to torchinfo's total over all outputs.

Below its table torchinfo states the size of all outputs of layers with parameters, including hidden ones. The part that
shown rows do not explain was made by hidden layers: the guess of `expand` is scaled to it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gpumemnet.names import Group
from gpumemnet.records import changing
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import Layer, ModelSummary, Shape

ATTENTION = "Attention"
"""Class name of the container of a guessed attention."""
FLOAT_BYTES = 4
_WITH_INSIDE = ("batchnormact2d", "layernormact2d", "groupnormact")
"""timm's norms that hold their activation as a separate layer."""
_TIED = (Group.CONV, Group.LINEAR, Group.EMBEDDING)
"""Layers that always have parameters, though tied ones are not counted."""
MOST = 64.0
"""A larger correction factor means that the text was misread."""
STACKED = 1.5
MOST_TIMES = 32
"""If hidden rows output more than this many times the guess, each represents a stage of several blocks."""
CLOSE = 0.02
"""Relative error below which a guess is not corrected."""
UNKNOWN_PERCENT = 6400
"""Percentage of scaling at which the text says almost nothing about the model."""


class Stretch(NamedTuple):
    """Scaling of the guess of hidden layers in one pass over the text.

    Attributes:
        factor: Factor of the bytes of guessed tensors.
        times: Number of convolution blocks per hidden row.
    """

    factor: float = 1.0
    times: int = 1

    @property
    def percent(self) -> int:
        """Total scaling of the guess, times 100."""
        return round(100 * self.factor * self.times)

    def scaled(self, n_bytes: int) -> int:
        """Scale the bytes of a guessed tensor."""
        return n_bytes if self.factor == 1.0 else max(int(n_bytes * self.factor), 1)


@changing
class Outputs:
    """Elements of the outputs in torchinfo's total, summed in a pass over a text.

    Attributes:
        shown: Elements of shown layers with parameters.
        guessed: Elements of guessed layers, without batch norms and projections of attention.
        guessed_norms: Elements of guessed batch norms.
        guessed_attention: Elements of guessed projections.
        norms_uncounted: Whether batch norms have inner layers, so that torchinfo does not count them.
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
    """Return the scaling for the next pass; None if the guess is good or there is no total.

    Args:
        stretch: Scaling of this pass.
        found: Counts of this pass.
        summary: The text.
        batch: Samples per step.
    """
    guessed = found.guessed + found.guessed_attention
    if stretch.factor != 1.0 or not guessed or not summary.output_bytes or not summary.batch_size:
        return None
    stated = summary.output_bytes // FLOAT_BYTES * batch // summary.batch_size
    left = max(stated - found.shown, 1)
    norms = 0 if found.norms_uncounted else found.guessed_norms
    # PyTorch's attention is one module, whose projections are not counted: use what fits better.
    counts = [n for n in (found.guessed + norms + found.guessed_attention, found.guessed + norms) if n]
    factor = min((left / count for count in counts), key=lambda ratio: abs(math.log(ratio)))
    factor = min(max(factor, 1 / MOST), MOST)
    if stretch.times == 1 and factor >= STACKED:
        return Stretch(times=min(round(factor), MOST_TIMES))
    return None if abs(math.log(factor)) < CLOSE else Stretch(factor=factor, times=stretch.times)


def enclosing_shapes(layers: tuple[Layer, ...], block: Layer) -> tuple[Shape, ...]:
    """Return the output shapes of the container around a block that shows none (a ModuleList).

    Args:
        layers: All rows.
        block: The row.
    """
    if block.output_shapes or not block.path:
        return block.output_shapes
    around, (_, name) = block.path[:-1], block.path[-1]
    found = (layer for layer in layers if layer.is_block and layer.name == name and layer.path == around)
    return next((layer.output_shapes for layer in found if layer is not block and layer.output_shapes), ())
