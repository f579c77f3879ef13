"""Templates of hidden blocks on images: residual, inverted, dense, inception and mixing blocks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from gpumemnet.summaries.collapsed_blocks import bottlenecks, inverted, named_layers, stacks
from gpumemnet.summaries.collapsed_blocks.layer_templates import Dims, guessed, norm_act
from gpumemnet.summaries.texts.records import Layer

_INVERTED = "inverted|mbconv|mobile|depthwise|edgeresidual"
"""Pattern in the class names of blocks that widen inside (or might)."""
_MAX_INNER = 64
"""Maximum number of inner convolutions of one block; remaining parameters go to the first."""


class ImageTemplates:
    """The likely layers of one hidden block, in running order."""

    def __init__(self, activation: str, *, layernorm: bool) -> None:
        """Store the text's information: the activation's kind, and whether it has layer norms."""
        self.activation = activation
        self.layernorm = layernorm

    def block(self, name: str, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        """Yield the layers of convolution blocks.

        Args:
            name: Class names of the block and the container around it, lower case.
            count: Parameters.
            ins: Shape of the input: batch, channels, sides.
            outs: Shape of the output.
        """
        first, last = ins[1], outs[1]
        if named := named_layers.inside(name.split()[0], count, ins, outs, self.activation):
            yield from named
        elif re.search("squeeze|excit|^se(module|layer)?\\b", name) and ins == outs:
            yield from self._gate(outs, count)
        elif re.search(_INVERTED, name) and (inside := inverted.solve(count, first, last)):
            yield from inverted.layers(inside, ins, outs, self.activation)
        elif re.search("inverted|mbconv|mobile", name):
            yield from self._inverted(count, ins, outs)
        elif self.layernorm and ins == outs and (blocks := stacks.convnext_blocks(count, last))[0]:
            yield from stacks.convnext(blocks[0], outs, self.activation, scaled=blocks[1])
        elif re.search("convnext|cnblock", name):
            yield from self._mixing(count, ins, outs)
        elif re.search("dense", name) and (layers := stacks.dense_layer(count, outs, self.activation)):
            yield from layers
        elif re.search("dense", name) and last > first:
            grown = last - first
            inner = (*outs[:1], 4 * grown, *outs[2:])
            yield from self._norm_act(ins)
            yield guessed("conv2d", ins, inner, 4 * grown * first)
            yield from self._norm_act(inner)
            yield guessed("conv2d", inner, (*outs[:1], grown, *outs[2:]), 36 * grown * grown)
            yield guessed("concatenate", outs, outs, 0)
        elif re.search("inception|mixed", name):
            yield from self._inception(name, count, ins, outs)
        elif self.layernorm and not re.search("conv|res|bottleneck", name):
            yield from self._mixing(count, ins, outs)
        else:
            yield from self._residual(name, count, ins, outs)

    def _mixing(self, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        """Mix pixels by a depthwise convolution (or attention), then channels, as ConvNeXt and similar models do.

        A row with equal input and output may represent a stage of such blocks.
        """
        last = outs[1]
        one = 8 * last * last + 57 * last
        times = min(max(round(count / one), 1), _MAX_INNER) if ins == outs else 1
        for _ in range(times):
            yield guessed("conv2d", ins, outs, 49 * last + last)
            yield guessed("layernorm", outs, outs, 2 * last)
            yield from self._pointwise(
                outs, min(max((count // times - 52 * last) // (2 * last + 1), last), 4 * last)
            )

    def _norm_act(self, shape: Dims) -> Iterator[Layer]:
        return norm_act(shape, self.activation)

    def _gate(self, shape: Dims, count: int) -> Iterator[Layer]:
        point = (*shape[:2], *(1 for _ in shape[2:]))
        yield guessed("adaptiveavgpool2d", shape, point, 0)
        yield guessed("conv2d", point, point, count)
        yield guessed("sigmoid", point, point, 0)
        yield guessed("multiply", shape, shape, 0)

    def _pointwise(self, shape: Dims, hidden: int) -> Iterator[Layer]:
        last = (shape[0], *shape[2:], shape[1])
        wide = (*last[:-1], hidden)
        yield guessed("linear", last, wide, hidden * (shape[1] + 1))
        yield guessed(self.activation, wide, wide, 0)
        yield guessed("linear", wide, last, shape[1] * (hidden + 1))

    def _inverted(self, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        wide = max((count - 2 * outs[1]) // (ins[1] + outs[1] + 13), 1)
        wide = ins[1] * max(round(wide / ins[1]), 1)
        before, after = (ins[0], wide, *ins[2:]), (outs[0], wide, *outs[2:])
        yield guessed("conv2d", ins, before, wide * ins[1])
        yield from self._norm_act(before)
        yield guessed("conv2d", before, after, 9 * wide)
        yield from self._norm_act(after)
        yield guessed("conv2d", after, outs, wide * outs[1])
        yield guessed("batchnorm2d", outs, outs, 2 * outs[1])

    def _inception(self, name: str, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        quarter = (outs[0], max(outs[1] // 4, 1), *outs[2:])
        spend = max((count - 2 * outs[1]) // 4, 1)
        for branch in range(4):
            if branch == 3:  # GoogLeNet's module; later versions average
                yield guessed("maxpool2d" if name.split()[0] == "inception" else "avgpool2d", ins, ins, 0)
            yield guessed("conv2d", ins, quarter, spend)
            yield from self._norm_act(quarter)
        yield guessed("concatenate", outs, outs, 0)

    def _residual(self, name: str, count: int, ins: Dims, outs: Dims) -> Iterator[Layer]:
        first, last = ins[1], outs[1]
        if inside := bottlenecks.solve(count, first, last):
            yield from bottlenecks.layers(inside, ins, outs, self.activation)
            return
        shortcut = first * last + 2 * last if ins != outs and "sequential" not in name.split()[0] else 0
        rest = count - shortcut
        alone, basic, narrow = _best_areas(rest, first, last)
        if alone[0] <= min(basic[0], narrow[0]) or rest < first * last:
            yield guessed("conv2d", ins, outs, max(rest - 2 * last, 1))
            yield guessed("batchnorm2d", outs, outs, 2 * last)
            if not re.search("shortcut|down", name.split()[0]):  # only the sum is activated
                yield guessed(self.activation, outs, outs, 0)
            return
        if "bottleneck" in name or narrow[0] < basic[0]:
            area = narrow[1]
            # w (first + last) + area w^2 remains for the three convolutions.
            spend = max(rest - 2 * last, 1)
            wide = max(
                int((-(first + last) + math.sqrt((first + last) ** 2 + 4 * area * spend)) / (2 * area)), 1
            )
            before, after = (ins[0], wide, *ins[2:]), (outs[0], wide, *outs[2:])
            yield guessed("conv2d", ins, before, first * wide)
            yield from self._norm_act(before)
            yield guessed("conv2d", before, after, area * wide * wide)
            yield from self._norm_act(after)
            yield guessed("conv2d", after, outs, wide * last)
            yield guessed("batchnorm2d", outs, outs, 2 * last)
        else:
            area = basic[1]
            convs = min(max(round((rest - area * first * last) / (area * last * last)), 1) + 1, _MAX_INNER)
            yield guessed("conv2d", ins, outs, area * first * last)
            yield from self._norm_act(outs)
            for at in range(1, convs):
                yield guessed("conv2d", outs, outs, area * last * last)
                yield guessed("batchnorm2d", outs, outs, 2 * last)
                if at + 1 < convs:
                    yield guessed(self.activation, outs, outs, 0)
        if shortcut:
            yield guessed("conv2d", ins, outs, first * last)
            yield guessed("batchnorm2d", outs, outs, 2 * last)
        yield guessed(self.activation, outs, outs, 0)


def _best_areas(count: int, first: int, last: int) -> list[tuple[float, int]]:
    """Find the kernel area that best explains the count: for one convolution, two, and a bottleneck of a quarter.

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
