"""The tape under construction: tensors with their shapes and widths, parameters, and the operations on them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING

from gpumemnet.names import Group, Precision
from gpumemnet.summaries.collapsed_blocks.scale import FLOAT_BYTES, Stretch
from gpumemnet.summaries.graph.tape import Op, Tape
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.kinds import Compute, Kind
from gpumemnet.summaries.texts.records import Layer, ModelSummary, Shape
from gpumemnet.training import TrainingSetup
from gpumemnet.units import KIB

if TYPE_CHECKING:
    from gpumemnet.summaries.collapsed_blocks.expand import ShownRows

ContainerPath = tuple[tuple[str, str], ...]
"""Containers around a layer, from the outside in, as (class name, local name)."""

_TINY_BYTES = 64 * KIB
_CAST_ITEMS = {Compute.LOW: 2, Compute.HIGH: 4}


class TapeBuilder:
    """Base for building every kind of layer: only this class writes to a tape.

    Attributes:
        tape: The tape so far.
        format: Format of the text.
        root: Class name of the model.
        shapes: Shape of each tensor of the tape, with the batch size applied.
        items: Bytes per element of each tensor.
        elements: Number of elements of each tensor.
        fixed: Tensors that get no gradient: the tape's constants and detached ones.
        loose: Tensors that no operation has read so far.
        sliced: Number of features read so far, of tensors that are read in slices.
        parted: Number of channels that convolutions have read, of images that they read in slices.
        batch: Samples per step.
        printed: The batch size that shapes still to be scaled were printed with; None if they have none.
        low: Bytes per element of what autocast computes in 16 bits.
        high: Bytes per element of everything else.
        amp: Whether autocast is on.
        block: Number of the repeated block that is being built (gradient checkpointing); 0 outside.
        shown: What the text shows about its hidden layers; None until first used.
        guess: Scale of the tensors of hidden layers, while those are built; None outside.
        current: The last layer's output tensor; -1 before the first.
        entries: Input of the first layer of each container, by the container's path.
        ended_at: Number of operations when the last container ended.
        head_width: Width of one attention head if nothing shows it.
        patches: For an image cut before its first convolution: number of patches, and tokens of each; torchsummary
            does not show the first.
        stated_input: 32-bit input elements per sample as stated by the text; 0 if not stated.
        rotates: A row makes the rotations of rotary positions.
    """

    def __init__(self, setup: TrainingSetup, summary: ModelSummary) -> None:
        self.tape = Tape()
        self.format = summary.format
        self.root = summary.root
        self.shapes: list[tuple[int, ...]] = []
        self.items: list[int] = []
        self.elements: list[int] = []
        self.fixed: set[int] = set()
        self.loose: set[int] = set()
        self.sliced: dict[int, int] = {}
        self.parted: dict[int, int] = {}
        self.batch = setup.batch_size or summary.batch_size or 1
        self.printed = summary.batch_size
        self.low = 2 if setup.precision in (Precision.AMP, Precision.BF16) else 4
        self.high = 2 if setup.precision is Precision.BF16 else 4
        self.amp = setup.precision is Precision.AMP
        self.block = 0
        self.shown: ShownRows | None = None
        self.guess: Stretch | None = None
        self.current = -1
        self.entries: dict[ContainerPath, int] = {}
        self.ended_at = -1
        self.head_width = 64
        self.patches: tuple[int, int] | None = None
        self.stated_input = (summary.input_bytes or 0) / FLOAT_BYTES / (summary.batch_size or 1)
        self.rotates = any("rotary" in layer.kind for layer in summary.layers)
        self._inside: ContainerPath = ()
        self._scaled: dict[tuple[int | None, Shape], tuple[int, ...]] = {}

    @contextmanager
    def guessing(self, stretch: Stretch) -> Iterator[None]:
        """Context for building hidden layers: their shapes include the batch size, their tensors are scaled."""
        before = self.printed, self.guess
        self.printed, self.guess = None, stretch
        try:
            yield
        finally:
            self.printed, self.guess = before

    def enter(self, path: ContainerPath) -> None:
        """Enter a layer's containers; the entries of containers that were left are discarded.

        "(recursive)" ones run several times under one name.
        """
        same = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(path, self._inside, strict=False))
        )
        for depth in range(same, len(path)):
            self.entries.pop(path[: depth + 1], None)
        self._inside = path

    def scaled(self, shape: Shape) -> tuple[int, ...]:
        """Apply the batch size to a printed shape."""
        key = self.printed, shape
        found = self._scaled.get(key)
        if found is None:
            found = self._scaled[key] = _scale(shape, self.printed, self.batch)
        return found

    def tensor(self, shape: tuple[int, ...], item: int, *, constant: bool = False) -> int:
        """Add a tensor to the tape; a guessed one is scaled to the text's totals.

        Args:
            shape: Batch size applied.
            item: Bytes per element.
            constant: Whether it needs no gradient and lives from step to step.
        """
        tape, number, elements = self.tape, len(self.shapes), math.prod(shape)
        self.shapes.append(shape)
        self.items.append(item)
        self.elements.append(elements)
        size = elements * item
        if self.guess is not None:
            size = self.guess.scaled(size)
            tape.hidden_bytes += size
        tape.sizes.append(size)
        if constant:
            tape.constants.add(number)
            self.fixed.add(number)
        return number

    def add(self, op: Op) -> None:
        """Add an operation to the running block, and record its inputs."""
        op.block = self.block
        tape, inputs, output = self.tape, op.inputs, op.output
        if not op.weights and self.fixed.issuperset(inputs):
            op.saved = op.extra = ()
            tape.detached.add(output)
            self.fixed.add(output)
        tape.ops.append(op)
        self.loose.difference_update(inputs)
        self.loose.add(output)

    def count(self, mult_adds: int) -> None:
        """Add multiply-adds of the forward pass; those of hidden layers are scaled like their tensors."""
        self.tape.mult_adds += mult_adds if self.guess is None else self.guess.scaled(mult_adds)

    def operation(self, kind: Kind, source: int, out: tuple[int, ...], weights: tuple[int, ...] = ()) -> int:
        """Add an operation with one input; return its output.

        Args:
            kind: The layer's behaviour.
            source: The tensor it reads.
            out: Shape of its output, batch size applied.
            weights: Numbers of its trainable parameters.
        """
        compute = kind.compute
        read = self.autocast(source, compute) if self.amp else source
        if kind.widens and self.items[read] < 4:
            read = self.tensor(self.shapes[source], 4)
        item = self.low if compute is Compute.LOW else self.high
        if compute is Compute.KEEP:
            item = self.items[source]
        # A tensor without other readers can be overwritten.
        last = self.tape.ops[-1] if self.tape.ops else None
        overwrites = kind.in_place and last is not None and last.output == source and source not in last.saved
        output = source if overwrites else self.tensor(out, item)
        saved: tuple[int, ...] = ()
        extra: tuple[int, ...] = () if read == source else (read,)
        # A mean over all positions keeps nothing: its gradient is a constant.
        global_mean = kind.group is Group.POOL and not kind.mask_bytes and math.prod(out[2:]) == 1
        if kind.saves_input and not global_mean:
            saved = (read,)
        if kind.saves_output:
            saved = (*saved, output)
        if kind.mask_bytes or kind.copies:
            widths = ([kind.mask_bytes] if kind.mask_bytes else []) + [item] * kind.copies
            kept = [self.tensor(out, width) for width in widths]
            saved, extra = (*saved, *kept), (*extra, *kept)
        if kind.pads:
            padded = self.tensor(self.shapes[source], item)
            saved, extra = (*saved, padded), (*extra, padded)
        self.add(
            Op(inputs=(source,), output=output, saved=saved, extra=extra, weights=weights, group=kind.group)
        )
        return output

    def autocast(self, source: int, compute: Compute = Compute.LOW) -> int:
        """Return the tensor an operation really reads: autocast makes a copy if the type does not fit.

        Each operation gets a separate copy: PyTorch caches only those of parameters.

        A residual stream is a sum with 32-bit terms, so a norm reads 32 bits even if the row before has 16: the copy
        represents that sum.

        Args:
            source: Tensor to read.
            compute: The operation's type under autocast; LOW is 16 bits.
        """
        if not self.amp:
            return source
        width = self.items[source]
        item = _CAST_ITEMS.get(compute, width)
        if width == item or width not in (2, 4):
            return source
        return self.tensor(self.shapes[source], item)

    def parameters(self, layer: Layer, out_features: int = 0) -> tuple[int, ...]:
        """Add a layer's parameters and buffers; return the numbers of the trainable ones.

        Args:
            layer: The row.
            out_features: Length of a possible bias; 0 to look for none.
        """
        count = layer.params
        if not count:
            return ()
        group, high, tape = kinds.group_of(layer.kind), self.high, self.tape
        if count * high < _TINY_BYTES:
            sizes = [count * high]  # weight and bias as one: the difference is a rounding of 512 bytes
        elif layer.param_shapes and sum(map(math.prod, layer.param_shapes)) == count:
            sizes = [math.prod(shape) * high for shape in layer.param_shapes]
        else:
            matrix = group in (Group.CONV, Group.LINEAR, Group.BATCHNORM, Group.LAYERNORM)
            bias = out_features if matrix and 0 < out_features < count and count % out_features == 0 else 0
            sizes = [(count - bias) * high, bias * high] if bias else [count * high]
        if group is Group.BATCHNORM:
            tape.frozen.append(count * high + 8)
        if not layer.trainable:
            tape.frozen += sizes
            return ()
        first = len(tape.parameters)
        tape.parameters += sizes
        return tuple(range(first, first + len(sizes)))


def _scale(shape: Shape, printed: int | None, batch: int) -> tuple[int, ...]:
    if not shape:
        return (batch,)
    if None in shape:
        return tuple(batch if dim is None else dim for dim in shape)
    dims = tuple(dim or 0 for dim in shape)
    if not printed or printed == batch:
        return dims
    if dims[0] % printed == 0:
        return (dims[0] // printed * batch, *dims[1:])
    at = dims.index(printed) if printed in dims else None
    return dims if at is None else (*dims[:at], batch, *dims[at + 1 :])
