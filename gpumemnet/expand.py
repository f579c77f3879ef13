"""The likely inside of a container that a depth limit cut off, from its name, its shapes and its parameter count.

torchinfo stops at depth 3 unless told otherwise, which hides the inside of most residual and attention blocks. Each
template below solves for the inner width that explains the parameters.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator

from gpumemnet import kinds
from gpumemnet.summary import Layer

Dims = tuple[int, ...]
ATTENTION = "Attention"
"""Class name around the layers of a guessed attention."""
_MOST_LAYERS = 200
"""More transformer layers than any model stacks; a larger count comes from a broken text."""
_MAX_INNER = 64
"""At most this many inner convolutions of one block; more parameters than that explains go to the first."""


def activation_of(layers: tuple[Layer, ...], *, tokens: bool) -> str:
    """Return the activation that the text shows most, or the usual one of such networks."""
    seen = Counter(
        layer.kind
        for layer in layers
        if kinds.group_of(layer.kind) == "activation" and layer.kind != "sigmoid"
    )
    return seen.most_common(1)[0][0] if seen else "gelu" if tokens else "relu"


def has_layernorm(layers: tuple[Layer, ...]) -> bool:
    """Tell whether the text shows more layer norms than batch norms."""
    groups = Counter(kinds.group_of(layer.kind) for layer in layers)
    return groups["layernorm"] > groups["batchnorm"]


def expand(
    layer: Layer,
    ins: Dims,
    outs: Dims,
    activation: str,
    *,
    dropout: bool,
    layernorm: bool = False,
    times: int = 1,
) -> tuple[Layer, ...]:
    """Return what the block probably runs.

    Args:
        layer: The block's row.
        ins: Shape of its input, batch size applied.
        outs: Shape of its output.
        activation: Kind of activation inside.
        dropout: Whether the text shows dropout elsewhere.
        layernorm: Whether it shows layer norms rather than batch norms.
        times: How many convolution blocks the row stands for, as far as the text's totals tell.

    Returns:
        Layers with shapes; empty if the block does nothing of its own.
    """
    count = layer.params or 0
    name = " ".join((layer.kind, *(cls.lower() for cls, _ in layer.path[-1:])))
    inside = _Inside(activation, dropout, layernorm)
    if not count or not outs or min(*ins, *outs, 1) < 1:
        return ()
    if len(outs) == 4 == len(ins) and outs[1] == outs[2] != outs[3] and not re.search("conv|res", name):
        outs, ins = (
            (outs[0], outs[1] * outs[2], outs[3]),
            (ins[0], math.prod(ins[1:-1]), ins[-1]),
        )  # channels last
    if len(outs) == 3 or (len(outs) == 2 and re.search("mlp|feed|ff", name)):
        made = inside.tokens(name, count, ins, outs)
    elif len(outs) >= 4 and len(ins) == len(outs):
        made = itertools.chain(
            inside.images(name, count // times, ins, outs),
            *(inside.images(name, count // times, outs, outs) for _ in range(times - 1)),
        )
    else:
        made = inside.plain(count, ins, outs)
    layers = tuple(made)
    spent = sum(inner.params or 0 for inner in layers)
    if count > spent:
        layers = (*layers, Layer(kind="parameter", name=layer.name, params=count - spent))
    return layers


class _Inside:
    """Templates; each yields layers in running order."""

    def __init__(self, activation: str, dropout: bool, layernorm: bool) -> None:
        self.layernorm = layernorm
        self.activation = activation
        self.dropout = dropout
        self.attentions = 0

    def tokens(self, name: str, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        """Attention, feed-forward, or one or more whole transformer layers."""
        width = outs[-1]
        square = width * width
        if re.search("att|mha", name.split()[0]):
            yield from self._attention(outs, min(count, 4 * square + 4 * width))
        elif re.search("mlp|feed|ff|intermediate", name) or count < 3 * square:
            hidden = max((count - width) // (ins[-1] + width + 1), 1)
            yield from self._feed_forward(ins, (*outs[:-1], hidden), outs)
        else:
            cross = "decoder" in name
            times, hidden = _stack(count, width, cross=cross)
            for _ in range(times):
                yield from self._transformer(outs, hidden, cross=cross)

    def _transformer(self, shape: Dims, hidden: int, *, cross: bool) -> Iterator[Layer]:
        width = shape[-1]
        for _ in range(2 if cross else 1):
            yield _layer("layernorm", shape, shape, 2 * width)
            yield from self._attention(shape, 4 * width * (width + 1))
            yield from self._dropped(shape)
        yield _layer("layernorm", shape, shape, 2 * width)
        yield from self._feed_forward(shape, (*shape[:-1], hidden), shape)

    def _attention(self, shape: Dims, count: int) -> Iterator[Layer]:
        width = shape[-1]
        own = width * (width + 1)
        others = max((count - 2 * own) // 2, width)
        narrow = (*shape[:-1], max(min(others // (width + 1), width), 1))
        self.attentions += 1
        where = ((ATTENTION, f"{ATTENTION}-{self.attentions}"),)
        yield _layer("linear", shape, shape, own, where, "(query)")
        yield _layer("linear", shape, narrow, others, where, "(key)")
        yield _layer("linear", shape, narrow, others, where, "(value)")
        yield _layer("linear", shape, shape, own, where, "(out)")

    def _feed_forward(self, ins: Dims, hidden: Dims, outs: Dims) -> Iterator[Layer]:
        yield _layer("linear", ins, hidden, hidden[-1] * (ins[-1] + 1))
        yield _layer(self.activation, hidden, hidden, 0)
        yield _layer("linear", hidden, outs, outs[-1] * (hidden[-1] + 1))
        yield from self._dropped(outs)

    def _dropped(self, shape: Dims) -> Iterator[Layer]:
        if self.dropout:
            yield _layer("dropout", shape, shape, 0)

    def images(self, name: str, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        """Convolution blocks."""
        first, last = ins[1], outs[1]
        if re.search("squeeze|excit|^se(module|layer)?\\b", name) and ins == outs:
            yield from self._gate(outs, count)
        elif re.search("inverted|mbconv|mobile", name):
            yield from self._inverted(count, ins, outs)
        elif re.search("convnext|cnblock", name):
            yield from self._mixing(count, ins, outs)
        elif re.search("dense", name) and last > first:
            grown = last - first
            inner = (*outs[:1], 4 * grown, *outs[2:])
            yield from self._norm_act(ins)
            yield _layer("conv2d", ins, inner, 4 * grown * first)
            yield from self._norm_act(inner)
            yield _layer("conv2d", inner, (*outs[:1], grown, *outs[2:]), 36 * grown * grown)
            yield _layer("concatenate", outs, outs, 0)
        elif re.search("inception|mixed", name):
            yield from self._inception(name, count, ins, outs)
        elif self.layernorm and not re.search("conv|res|bottleneck", name):
            yield from self._mixing(count, ins, outs)
        else:
            yield from self._residual(name, count, ins, outs)

    def _mixing(self, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        """Mix pixels by a depthwise convolution (or attention), then channels, as ConvNeXt and its kin do."""
        last = outs[1]
        yield _layer("conv2d", ins, outs, 49 * last + last)
        yield _layer("layernorm", outs, outs, 2 * last)
        yield from self._pointwise(outs, min(max((count - 52 * last) // (2 * last + 1), last), 4 * last))

    def _norm_act(self, shape: Dims) -> Iterator[Layer]:
        yield _layer("batchnorm2d", shape, shape, 2 * shape[1])
        yield _layer(self.activation, shape, shape, 0)

    def _gate(self, shape: Dims, count: int) -> Iterator[Layer]:
        point = (*shape[:2], *(1 for _ in shape[2:]))
        yield _layer("adaptiveavgpool2d", shape, point, 0)
        yield _layer("conv2d", point, point, count)
        yield _layer("sigmoid", point, point, 0)
        yield _layer("multiply", shape, shape, 0)

    def _pointwise(self, shape: Dims, hidden: int) -> Iterator[Layer]:
        last = (shape[0], *shape[2:], shape[1])
        wide = (*last[:-1], hidden)
        yield _layer("linear", last, wide, hidden * (shape[1] + 1))
        yield _layer(self.activation, wide, wide, 0)
        yield _layer("linear", wide, last, shape[1] * (hidden + 1))

    def _inverted(self, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        wide = max((count - 2 * outs[1]) // (ins[1] + outs[1] + 13), 1)
        wide = ins[1] * max(round(wide / ins[1]), 1)
        before, after = (ins[0], wide, *ins[2:]), (outs[0], wide, *outs[2:])
        yield _layer("conv2d", ins, before, wide * ins[1])
        yield from self._norm_act(before)
        yield _layer("conv2d", before, after, 9 * wide)
        yield from self._norm_act(after)
        yield _layer("conv2d", after, outs, wide * outs[1])
        yield _layer("batchnorm2d", outs, outs, 2 * outs[1])

    def _inception(self, name: str, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        quarter = (outs[0], max(outs[1] // 4, 1), *outs[2:])
        spend = max((count - 2 * outs[1]) // 4, 1)
        for branch in range(4):
            if branch == 3:  # GoogLeNet's module; its successors take the average
                yield _layer("maxpool2d" if name.split()[0] == "inception" else "avgpool2d", ins, ins, 0)
            yield _layer("conv2d", ins, quarter, spend)
            yield from self._norm_act(quarter)
        yield _layer("concatenate", outs, outs, 0)

    def _residual(self, name: str, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        first, last = ins[1], outs[1]
        shortcut = first * last + 2 * last if ins != outs and "sequential" not in name.split()[0] else 0
        rest = count - shortcut
        alone, basic, narrow = _best_areas(rest, first, last)
        if alone[0] <= min(basic[0], narrow[0]) or rest < first * last:
            yield _layer("conv2d", ins, outs, max(rest - 2 * last, 1))
            yield from self._norm_act(outs)
            return
        if "bottleneck" in name or narrow[0] < basic[0]:
            area = narrow[1]
            # w (first + last) + area w^2 is what is left for the three convolutions.
            spend = max(rest - 2 * last, 1)
            wide = max(
                int((-(first + last) + math.sqrt((first + last) ** 2 + 4 * area * spend)) / (2 * area)), 1
            )
            before, after = (ins[0], wide, *ins[2:]), (outs[0], wide, *outs[2:])
            yield _layer("conv2d", ins, before, first * wide)
            yield from self._norm_act(before)
            yield _layer("conv2d", before, after, area * wide * wide)
            yield from self._norm_act(after)
            yield _layer("conv2d", after, outs, wide * last)
            yield _layer("batchnorm2d", outs, outs, 2 * last)
        else:
            area = basic[1]
            convs = min(max(round((rest - area * first * last) / (area * last * last)), 1) + 1, _MAX_INNER)
            yield _layer("conv2d", ins, outs, area * first * last)
            yield from self._norm_act(outs)
            for at in range(1, convs):
                yield _layer("conv2d", outs, outs, area * last * last)
                yield _layer("batchnorm2d", outs, outs, 2 * last)
                if at + 1 < convs:
                    yield _layer(self.activation, outs, outs, 0)
        if shortcut:
            yield _layer("conv2d", ins, outs, first * last)
            yield _layer("batchnorm2d", outs, outs, 2 * last)
        yield _layer(self.activation, outs, outs, 0)

    def plain(self, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        """Linear layers."""
        hidden = (*outs[:-1], max(count // max(ins[-1] + outs[-1], 1), 1))
        yield from self._feed_forward(ins, hidden, outs)


def _best_areas(count: int, first: int, last: int) -> list[tuple[float, int]]:
    """For one convolution, for two, and for a bottleneck of a quarter: the kernel area that explains the count best.

    Returns:
        (relative error, area) of each.
    """
    inner = max(last // 4, 1)
    found: list[tuple[float, int]] = []
    for alone, basic in ((True, False), (False, True), (False, False)):
        errors = []
        for area in (1, 9, 25, 49):
            if alone:
                expected = area * first * last + 2 * last
            elif basic:
                expected = area * (first * last + last * last) + 4 * last
            else:
                expected = first * inner + area * inner * inner + inner * last + 4 * inner + 2 * last
            errors.append((abs(count - expected) / expected, area))
        found.append(min(errors[1:] if not alone else errors))
    return found


def _stack(count: int, width: int, *, cross: bool) -> tuple[int, int]:
    """Return how many transformer layers, and of which inner width, have this many parameters.

    A layer has 4 (w + 1) w in each attention, 2 w in each norm and 2 w h + h + w in its feed-forward part; of the
    pairs that fit exactly the one with h nearest to 4 w is taken.
    """
    attentions = 2 if cross else 1
    fixed = attentions * (4 * width * (width + 1) + 2 * width) + 3 * width
    usual = fixed + (2 * width + 1) * 4 * width
    best = (min(max(round(count / usual), 1), _MOST_LAYERS), 4 * width)
    best_distance = math.inf
    for times in range(1, min(count // fixed, _MOST_LAYERS) + 1):
        for left in (count, count - 2 * width):  # a last norm may be inside, too
            hidden, remainder = divmod(left - times * fixed, times * (2 * width + 1))
            distance = abs(math.log(hidden / (4 * width))) if hidden > 0 else math.inf
            if not remainder and distance < best_distance:
                best, best_distance = (times, hidden), distance
    return (
        best if best_distance < math.inf else (best[0], max((count // best[0] - fixed) // (2 * width + 1), 1))
    )


def _layer(
    kind: str, ins: Dims, outs: Dims, params: int, path: tuple[tuple[str, str], ...] = (), name: str = ""
) -> Layer:
    return Layer(
        kind=kind,
        name=f"{kind}{name}",
        path=path,
        input_shapes=(ins,),
        output_shapes=(outs,),
        params=max(params, 0),
    )
