"""How much the layers that a depth limit hides make, from torchinfo's own total over all of them.

Below its table torchinfo states the size of all outputs of layers with parameters, hidden ones included. What the
shown rows do not explain was made by hidden layers: what `expand` guessed of them is scaled to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpumemnet import kinds
from gpumemnet.summary import Layer, ModelSummary, Shape

ATTENTION = "Attention"
"""Class name around the layers of a guessed attention."""
FLOAT_BYTES = 4
_WITH_INSIDE = ("batchnormact2d", "layernormact2d", "groupnormact")
"""timm's norms hold their activation as a layer of its own."""
_TIED = ("conv", "linear", "embedding")
"""Layers whose parameters are never none, though tied ones have been taken out of the count."""
MOST = 64.0
"""A guess further off than this tells that the text was misread."""
STACKED = 1.5
MOST_TIMES = 32
"""Where hidden rows make more than this many times the guess, each is a stage of several blocks."""
CLOSE = 0.02
"""Within this share a guess need not be corrected."""


@dataclass(slots=True)
class Hidden:
    """Counts and scales what hidden layers make.

    Attributes:
        factor: What guessed tensors are multiplied with.
        times: How many convolution blocks each hidden row stands for.
        shown: Elements of outputs of shown layers with parameters.
        guessed: Those of guessed layers, batch norms and projections of attention left out.
        guessed_norms: Those of guessed batch norms.
        guessed_attention: Those of guessed projections.
        norms_uncounted: Batch norms have layers of their own inside, so torchinfo does not count them.
    """

    factor: float = 1.0
    times: int = 1
    shown: int = 0
    guessed: int = 0
    guessed_norms: int = 0
    guessed_attention: int = 0
    norms_uncounted: bool = False

    def count(self, layer: Layer, elements: int, *, inside: bool) -> None:
        """Count an output that torchinfo's total counts: of a layer with parameters and without layers inside."""
        group = kinds.group_of(layer.kind)
        if layer.kind in _WITH_INSIDE:
            self.norms_uncounted = True
        elif not (layer.params or group in _TIED):
            return
        elif not inside:
            self.shown += elements
        elif group == "batchnorm":
            self.guessed_norms += elements
        elif group == "linear" and layer.path and layer.path[-1][0] == ATTENTION:
            self.guessed_attention += elements
        else:
            self.guessed += elements

    def scaled(self, n_bytes: int) -> int:
        """Scale a guessed tensor."""
        return n_bytes if self.factor == 1.0 else max(int(n_bytes * self.factor), 1)

    def fitted(self, summary: ModelSummary, batch: int) -> Hidden | None:
        """Return what to scale by in the next pass; None if the guess is good or nothing tells.

        Args:
            summary: The text.
            batch: The job's batch size.
        """
        guessed = self.guessed + self.guessed_attention
        if self.factor != 1.0 or not guessed or not summary.output_bytes or not summary.batch_size:
            return None
        stated = summary.output_bytes // FLOAT_BYTES * batch // summary.batch_size
        left = max(stated - self.shown, 1)
        norms = 0 if self.norms_uncounted else self.guessed_norms
        # PyTorch's own attention is one module, whose projections are not counted: take what fits better.
        counts = [n for n in (self.guessed + norms + self.guessed_attention, self.guessed + norms) if n]
        factor = min((left / count for count in counts), key=lambda ratio: abs(math.log(ratio)))
        factor = min(max(factor, 1 / MOST), MOST)
        if self.times == 1 and factor >= STACKED:
            return Hidden(times=min(round(factor), MOST_TIMES))
        return None if abs(math.log(factor)) < CLOSE else Hidden(factor=factor, times=self.times)


def enclosing_shapes(layers: tuple[Layer, ...], block: Layer) -> tuple[Shape, ...]:
    """Return the output shapes of the container around a block that has none of its own (a ModuleList)."""
    if block.output_shapes or not block.path:
        return block.output_shapes
    around, (_, name) = block.path[:-1], block.path[-1]
    found = (layer for layer in layers if layer.is_block and layer.name == name and layer.path == around)
    return next((layer.output_shapes for layer in found if layer is not block and layer.output_shapes), ())
