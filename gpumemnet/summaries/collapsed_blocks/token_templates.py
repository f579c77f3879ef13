"""Templates of hidden blocks on tokens or vectors: attention, feed-forward parts, whole transformer layers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from gpumemnet.summaries.collapsed_blocks import decoders
from gpumemnet.summaries.collapsed_blocks.layer_templates import Dims, guessed
from gpumemnet.summaries.collapsed_blocks.scale import ATTENTION
from gpumemnet.summaries.texts.records import Layer

_HEAD = 64
"""Usual width of a head."""
_MOST_LAYERS = 200
"""More transformer layers than any model has; a larger count comes from a broken text."""


class TokenTemplates:
    """The likely layers of one hidden block, in running order."""

    def __init__(
        self,
        activation: str,
        *,
        dropout: bool,
        container: str = ATTENTION,
        norm: str = "layernorm",
        written_out: bool = False,
    ) -> None:
        """Store the text's information: activation and norm, dropout, attention's class, whether it is written out."""
        self.activation = activation
        self.dropout = dropout
        self.container = container
        self.norm = norm
        self.written_out = written_out
        self.attentions = 0

    def block(self, name: str, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        """Yield attention, feed-forward, or one or more whole transformer layers.

        Args:
            name: Class names of the block and the container around it, lower case.
            count: Parameters.
            ins: Shape of the input: batch, tokens, width.
            outs: Shape of the output.
        """
        width = outs[-1]
        square = width * width
        linear = ins[-1] * width
        if count in (linear + 3 * width, linear + 2 * width):  # BERT's last transformation, with its norm
            yield guessed("linear", ins, outs, count - 2 * width)
            yield guessed(self.activation, outs, outs, 0)
            yield guessed("layernorm", outs, outs, 2 * width)
        elif re.search("att|mha", name.split()[0]):
            yield from self._attention(outs, min(count, 4 * square + 4 * width))
        elif re.search("mlp|feed|ff|intermediate", name) or count < 3 * square:
            hidden = max((count - width) // (ins[-1] + width + 1), 1)
            yield from self._feed_forward(ins, (*outs[:-1], hidden), outs)
        elif not exact_stack(count, width, cross="decoder" in name) and (
            form := decoders.solve(count, width, self._norm_params(width))
        ):
            for _ in range(form.times):
                yield from self._decoder(outs, form)
        else:
            cross = "decoder" in name
            times, hidden = _stack(count, width, cross=cross)
            for _ in range(times):
                yield from self._transformer(outs, hidden, cross=cross)

    def _transformer(self, shape: Dims, hidden: int, *, cross: bool) -> Iterator[Layer]:
        width = shape[-1]
        for _ in range(2 if cross else 1):
            yield guessed("layernorm", shape, shape, 2 * width)
            yield from self._attention(shape, 4 * width * (width + 1))
            yield from self._dropped(shape)
        yield guessed("layernorm", shape, shape, 2 * width)
        yield from self._feed_forward(shape, (*shape[:-1], hidden), shape)

    def _decoder(self, shape: Dims, form: decoders.DecoderForm) -> Iterator[Layer]:
        """Return one layer; if both parts read the same norm, it comes before the first."""
        width, (biases, bias) = shape[-1], form.biases
        narrow, wide = (*shape[:-1], form.keys), (*shape[:-1], form.hidden)
        inner, outer = biases != "none", biases == "all"
        yield guessed(self.norm, shape, shape, self._norm_params(width))
        yield from self._projections(
            shape, narrow, (width + inner) * width, (width + inner) * form.keys, (width + outer) * width
        )
        yield from self._dropped(shape)
        if form.norms > 1:
            yield guessed(self.norm, shape, shape, self._norm_params(width))
        yield guessed("linear", shape, wide, (width + bias) * form.hidden)
        yield guessed(self.activation, wide, wide, 0)
        if form.gated:
            yield guessed("linear", shape, wide, (width + bias) * form.hidden)
        yield guessed("linear", wide, shape, (form.hidden + bias) * width)
        yield from self._dropped(shape)

    def _norm_params(self, width: int) -> int:
        return width if "rms" in self.norm else 2 * width

    def _projections(self, shape: Dims, narrow: Dims, queries: int, others: int, out: int) -> Iterator[Layer]:
        self.attentions += 1
        where = ((self.container, f"{self.container}-{self.attentions}"),)
        yield guessed("linear", shape, shape, queries, where, "(query)")
        yield guessed("linear", shape, narrow, others, where, "(key)")
        yield guessed("linear", shape, narrow, others, where, "(value)")
        if self.written_out:
            scores = (shape[0], max(shape[-1] // _HEAD, 1), shape[-2], shape[-2])
            yield guessed("dropout" if self.dropout else "softmax", scores, scores, 0, where)
        yield guessed("linear", shape, shape, out, where, "(out)")

    def _attention(self, shape: Dims, count: int) -> Iterator[Layer]:
        width = shape[-1]
        own = width * (width + 1)
        others = max((count - 2 * own) // 2, width)
        narrow = (*shape[:-1], max(min(others // (width + 1), width), 1))
        yield from self._projections(shape, narrow, own, others, own)

    def _feed_forward(self, ins: Dims, hidden: Dims, outs: Dims) -> Iterator[Layer]:
        yield guessed("linear", ins, hidden, hidden[-1] * (ins[-1] + 1))
        yield guessed(self.activation, hidden, hidden, 0)
        yield guessed("linear", hidden, outs, outs[-1] * (hidden[-1] + 1))
        yield from self._dropped(outs)

    def _dropped(self, shape: Dims) -> Iterator[Layer]:
        if self.dropout:
            yield guessed("dropout", shape, shape, 0)

    def plain(self, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        """Yield linear layers.

        Args:
            count: Parameters.
            ins: Shape of the input, width last.
            outs: Shape of the output.
        """
        hidden = (*outs[:-1], max(count // max(ins[-1] + outs[-1], 1), 1))
        yield from self._feed_forward(ins, hidden, outs)


def exact_stack(count: int, width: int, *, cross: bool = False) -> bool:
    """Return whether transformer layers of a usual inner width have exactly this many parameters.

    Args:
        count: Parameters.
        width: Width of the tokens.
        cross: Whether each layer also reads another sequence.
    """
    if count < 3 * width * width:
        return False
    times, hidden = _stack(count, width, cross=cross)
    attentions = 2 if cross else 1
    each = attentions * (4 * width * (width + 1) + 2 * width) + 3 * width + (2 * width + 1) * hidden
    return hidden % width == 0 and count in (times * each, times * each + 2 * width)


def _stack(count: int, width: int, *, cross: bool) -> tuple[int, int]:
    """Return the number of transformer layers, and their inner width, for this many parameters.

    A layer has 4 (w + 1) w in each attention, 2 w in each norm and 2 w h + h + w in its feed-forward part; among
    exact pairs, the one with h nearest to 4 w is chosen.
    """
    attentions = 2 if cross else 1
    fixed = attentions * (4 * width * (width + 1) + 2 * width) + 3 * width
    usual = fixed + (2 * width + 1) * 4 * width
    best = (min(max(round(count / usual), 1), _MOST_LAYERS), 4 * width)
    best_distance = math.inf
    for times in range(1, min(count // fixed, _MOST_LAYERS) + 1):
        for left in (count, count - 2 * width):  # a last norm may be included
            hidden, remainder = divmod(left - times * fixed, times * (2 * width + 1))
            distance = abs(math.log(hidden / (4 * width))) if hidden > 0 else math.inf
            if not remainder and distance < best_distance:
                best, best_distance = (times, hidden), distance
    return (
        best if best_distance < math.inf else (best[0], max((count // best[0] - fixed) // (2 * width + 1), 1))
    )
