"""From a parsed summary to a tape: which tensor each layer reads, and the operations that no summary shows.

A summary lists modules, not the graph. The input of a layer is found, in this order: the output of the layer before,
if the sizes agree; the latest tensor of the right shape (a branch); else a new tensor that some function must have
made (a concatenation, a product with a gate). Residual additions add no kept tensor: the sum takes the place of one
of its terms.
"""

from __future__ import annotations

import math

from gpumemnet import attention, cudnn, expand, kinds, recurrent, sources
from gpumemnet.kinds import Compute, Kind
from gpumemnet.sites import Site, find_sites
from gpumemnet.summary import Layer, ModelSummary, Shape
from gpumemnet.tape import Op, Tape
from gpumemnet.training import TrainingSetup
from gpumemnet.units import KIB

_UNKNOWN = Kind(group="unknown", saves_input=True)
_TINY_BYTES = 64 * KIB
_RELU_INSIDE = ("TransformerEncoderLayer", "TransformerDecoderLayer")
"""PyTorch's own layers call their activation as a function, so no row shows it."""


class Wiring:
    """Builds one tape; use `wire`.

    Attributes:
        tape: What has been built so far.
        shapes: Shape of each tensor of the tape, with the batch size applied.
        items: Bytes per element of each tensor.
        current: The tensor that the last layer made; -1 before the first.
        entries: What the first layer of each container read.
        loose: Tensors made that no operation has read so far.
        warnings: What had to be guessed.
    """

    def __init__(self, summary: ModelSummary, setup: TrainingSetup) -> None:
        self.summary = summary
        self.setup = setup
        self.tape = Tape()
        self.shapes: list[tuple[int, ...]] = []
        self.items: list[int] = []
        self.current = -1
        self.warnings: list[str] = list(summary.warnings)
        self.batch = setup.batch_size or summary.batch_size or 1
        self.low = 2 if setup.precision in ("amp", "bf16") else 4
        self.high = 2 if setup.precision == "bf16" else 4
        self.amp = setup.precision == "amp"
        self.reading: int | None = None  # the tensor that all projections of one attention read
        self.loose: set[int] = set()
        self.entries: dict[tuple[tuple[str, str], ...], int] = {}
        self._printed_inside = False
        self._block_number = 0
        self._blocks: dict[tuple[tuple[str, str], ...], int] = {}
        self._printed = summary.batch_size
        self._scaled: dict[Shape, tuple[int, ...]] = {}
        self._unknown: dict[str, int] = {}
        self._cast: dict[tuple[int, int], int] = {}  # tensor and width -> its copy of that width

    def run(self) -> Tape:
        """Wire every layer, then the loss."""
        self._run(self.summary.layers)
        self._missing_parameters()
        self._loss()
        self.warnings += [
            f"unknown layer '{name}' ({n}x): counted by its shapes" for name, n in self._unknown.items()
        ]
        return self.tape

    def _run(self, layers: tuple[Layer, ...]) -> None:
        sites = find_sites(layers)
        members = {index: site for site in sites.values() for index in site.projections}
        skip: set[int] = set()
        outputs: dict[int, int] = {}
        for index, layer in enumerate(layers):
            if index in skip:
                continue
            self._enter(layer)
            if layer.is_block:
                self._block(layer)
                continue
            if layer.kind == "parameter" or not layer.runs:
                self.parameters(layer)
                continue
            if layer.kind == "multiheadattention":
                attention.module(self, layer)
                continue
            site = members.get(index)
            if site is not None and index == site.projections[0]:
                self.reading = None
            self._leaf(layer, shared=site is not None)
            if site is None:
                continue
            outputs[index] = self.current
            if index == site.projections[-1]:
                self._attend(site, outputs, layers)
                if site.scores is not None:
                    skip.add(site.scores)

    def _end(self, layer: Layer) -> None:
        """The end of a container: what it hands on may be more than its last layer made."""
        if self.current < 0 or not layer.output_shapes:
            return
        out = sources.unfolded(self, layer, kinds.KINDS["identity"], self.scaled(layer.output_shapes[0]))
        same = self.elements(self.current) == math.prod(out)
        if len(out) > 2 and not same:
            self.current = sources.gate(self, out) or sources.joined(self, out)
        elif same and layer.args.get("own_params") in out[1:2] + out[-1:]:
            # One parameter per channel: the output is scaled by it (LayerScale), which keeps the unscaled one.
            scaled = self.tensor(self.shapes[self.current], self.items[self.current])
            self.add(Op(inputs=(self.current,), output=scaled, saved=(self.current,), group="function"))
            self.current = scaled

    def _enter(self, layer: Layer) -> None:
        """Note which repeated block runs: the outermost container in a list or sequence of containers."""
        path = layer.path
        if not path or self._printed_inside:
            return
        for at in range(len(path) - 1):
            if path[at][0] in ("ModuleList", "Sequential"):
                self._block_number = self._blocks.setdefault(path[: at + 2], len(self._blocks) + 1)
                return
        self._block_number = 0

    def _block(self, layer: Layer) -> None:
        """A container whose inside the text does not show; one that ended adds a sum, which keeps nothing new."""
        if not layer.params:
            self._end(layer)
            return
        if self.summary.format == "torchsummary" or (self.current < 0 and not layer.output_shapes):
            self.parameters(layer)
            return
        outs = self.scaled(layer.output_shapes[0]) if layer.output_shapes else self.shapes[self.current]
        ins = self.scaled(layer.input_shapes[0]) if layer.input_shapes else outs
        if not layer.input_shapes and self.current >= 0:
            ins = self.shapes[self.current]
        shown = self.summary.layers
        inside = expand.expand(
            layer, ins, outs, expand.activation_of(shown, tokens=len(outs) == 3),
            dropout=any(kinds.group_of(other.kind) == "dropout" for other in shown),
        )  # fmt: skip
        self.tape.guessed += len(inside)
        # What `expand` made has the batch size applied already.
        outer, self._printed, self._scaled = (self._printed, self._scaled), None, {}
        self._printed_inside = True
        self._run(inside)
        self._printed, self._scaled = outer
        self._printed_inside = False

    # -- shapes and tensors --------------------------------------------------------------------------------------

    def scaled(self, shape: Shape) -> tuple[int, ...]:
        """Apply the batch size to a printed shape."""
        found = self._scaled.get(shape)
        if found is None:
            found = self._scaled[shape] = self._scale(shape)
        return found

    def _scale(self, shape: Shape) -> tuple[int, ...]:
        printed, batch = self._printed, self.batch
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

    def add(self, op: Op) -> None:
        """Add an operation to the block that is running, and note what it reads."""
        op.block = self._block_number
        tape = self.tape
        if not op.weights and all(
            number in tape.constants or number in tape.detached for number in op.inputs
        ):
            op.saved = op.extra = ()
            tape.detached.add(op.output)
        self.tape.ops.append(op)
        self.loose.add(op.output)
        self.loose.difference_update(op.inputs)

    def tensor(self, shape: tuple[int, ...], item: int, *, constant: bool = False) -> int:
        """Add a tensor to the tape."""
        self.shapes.append(shape)
        self.items.append(item)
        return self.tape.tensor(math.prod(shape) * item, constant=constant)

    def elements(self, number: int) -> int:
        """Return the number of elements of a tensor."""
        return math.prod(self.shapes[number])

    def autocast(self, source: int, compute: Compute = "low") -> int:
        """Return the tensor an operation really reads: autocast makes a copy where the type does not fit.

        A residual stream is a sum with 32-bit terms, so what a norm reads is 32 bits wide even where the row before
        it has 16: the copy stands for that sum.
        """
        item = {"low": 2, "high": 4}.get(compute, self.items[source])
        if not self.amp or self.items[source] == item or self.items[source] not in (2, 4):
            return source
        if (source, item) not in self._cast:
            self._cast[source, item] = self.tensor(self.shapes[source], item)
        return self._cast[source, item]

    def parameters(self, layer: Layer, out_features: int = 0) -> tuple[int, ...]:
        """Add a layer's parameters and buffers; return the numbers of the trainable ones."""
        count = layer.params or 0
        if not count:
            return ()
        if layer.param_shapes and sum(map(math.prod, layer.param_shapes)) == count:
            sizes = [math.prod(shape) for shape in layer.param_shapes]
        else:
            matrix = kinds.group_of(layer.kind) in ("conv", "linear", "batchnorm", "layernorm")
            bias = out_features if matrix and 0 < out_features < count and count % out_features == 0 else 0
            sizes = [count - bias, bias] if bias else [count]
        if count * self.high < _TINY_BYTES:
            sizes = [count]  # weight and bias as one: a rounding of 512 bytes is all that differs
        if kinds.group_of(layer.kind) == "batchnorm":
            self.tape.frozen.append(count * self.high + 8)
        if not layer.trainable:
            self.tape.frozen.extend(size * self.high for size in sizes)
            return ()
        first = len(self.tape.parameters)
        self.tape.parameters.extend(size * self.high for size in sizes)
        return tuple(range(first, len(self.tape.parameters)))

    # -- layers ------------------------------------------------------------------------------------------------

    def _leaf(self, layer: Layer, *, shared: bool = False) -> None:
        kind = kinds.find(layer.kind)
        if kind is None:
            name = layer.name.split("-")[0].split(":")[0].split(" ")[0]
            self._unknown[name] = self._unknown.get(name, 0) + 1
            kind = _UNKNOWN
        if not layer.output_shapes:
            self.parameters(layer)
            return
        out = self.scaled(layer.output_shapes[0])
        out = sources.unfolded(self, layer, kind, out)
        source = sources.find(self, layer, kind, out)
        for depth in range(len(layer.path)):
            self.entries.setdefault(layer.path[: depth + 1], source)
        if shared:
            source = self.reading = source if self.reading is None else self.reading
        if kind.view:
            self.current = source
            self.parameters(layer)
            return
        self.current = self.operation(kind, source, out, self.parameters(layer, _channels(kind, out)))
        if kind.group == "rnn":
            self._reserve(layer, source, out)
        elif kind.group == "conv":
            self._borrow(layer, source, out)
        if kind.group in ("conv", "linear", "rnn") and self.amp:
            self.tape.cast_bytes += (layer.params or 0) * 2
        widens = kind.group == "linear" and out[-1] > self.shapes[source][-1]
        if widens and layer.path and layer.path[-1][0] in _RELU_INSIDE:
            self.current = self.operation(kinds.KINDS["relu"], self.current, out)

    def _borrow(self, layer: Layer, source: int, out: tuple[int, ...]) -> None:
        """Note what cuDNN borrows for a convolution."""
        ins, count = self.shapes[source], layer.params or 0
        if len(ins) != len(out) or len(out) < 3 or not ins[1] or not out[1]:
            return
        weights = (
            count - out[1] if count % max(out[1], 1) == 0 and (count // out[1] - 1) % ins[1] == 0 else count
        )
        groups = cudnn.groups_of(weights, ins[1], out[1])
        data, weight = cudnn.workspaces(x=ins, y=out, weights=weights, groups=groups, item_bytes=self.low)
        op = self.tape.ops[-1]
        op.forward_workspace_bytes, op.data_workspace_bytes, op.weight_workspace_bytes = data, data, weight
        self.tape.grouped += groups > 1

    def _reserve(self, layer: Layer, source: int, out: tuple[int, ...]) -> None:
        """Add the one buffer in which cuDNN keeps gates and cells of all layers."""
        kept = recurrent.reserve_elements(layer.kind, layer.params or 0, self.shapes[source][-1], out)
        buffer = self.tensor((kept,), self.low)
        op = self.tape.ops[-1]
        op.extra, op.saved = (*op.extra, buffer), (*op.saved, buffer)
        # The weights are copied into cuDNN's own order for each call.
        op.forward_workspace_bytes = op.data_workspace_bytes = (layer.params or 0) * self.low

    def operation(self, kind: Kind, source: int, out: tuple[int, ...], weights: tuple[int, ...] = ()) -> int:
        """Add an operation with one input; return its output."""
        read = self.autocast(source, kind.compute)
        item = self.items[source]
        if kind.compute != "keep":
            item = self.low if kind.compute == "low" else self.high
        output = self.tensor(out, item)
        saved: list[int] = []
        extra: list[int] = [] if read == source else [read]
        # A mean over all positions keeps nothing: its gradient is a constant.
        global_mean = kind.group == "pool" and not kind.mask_bytes and math.prod(out[2:]) == 1
        if kind.saves_input and not global_mean:
            saved.append(read)
        if kind.saves_output:
            saved.append(output)
        if kind.mask_bytes:
            extra.append(self.tensor(out, kind.mask_bytes))
            saved.append(extra[-1])
        for _ in range(kind.copies):
            extra.append(self.tensor(out, item))
            saved.append(extra[-1])
        self.add(
            Op(
                inputs=(source,), output=output, saved=tuple(saved), extra=tuple(extra), weights=weights,
                group=kind.group,             )
        )  # fmt: skip
        return output

    def _attend(self, site: Site, outputs: dict[int, int], layers: tuple[Layer, ...]) -> None:
        projected = [outputs[index] for index in site.projections]
        scores = self.scaled(layers[site.scores].output_shapes[0]) if site.scores is not None else None
        dropped = site.scores is not None and kinds.group_of(layers[site.scores].kind) == "dropout"
        self.current = attention.attend(self, projected, scores, eager=site.eager, dropout=dropped)

    # -- what rows do not show -----------------------------------------------------------------------------------

    def _missing_parameters(self) -> None:
        total = self.summary.total_params
        counted = sum(layer.params or 0 for layer in self.summary.layers)
        if total is not None and total > counted:
            self.tape.parameters.append((total - counted) * self.high)

    def _loss(self) -> None:
        """Cross entropy on the last output: its log-softmax is kept, in 32 bits."""
        if self.current < 0 or not self.tape.ops:
            return
        shape = self.shapes[self.current]
        probabilities = self.tensor(shape, self.high)
        self.add(Op(inputs=(self.current,), output=probabilities, saved=(probabilities,), group="loss"))


def _channels(kind: Kind, out: tuple[int, ...]) -> int:
    if kind.group in ("conv", "batchnorm"):
        return out[1] if len(out) > 1 else 0
    return out[-1] if out else 0


def wire(summary: ModelSummary, setup: TrainingSetup) -> tuple[Tape, tuple[str, ...]]:
    """Build the tape of one training step.

    Args:
        summary: The parsed text.
        setup: How it is trained.

    Returns:
        The tape, and warnings about what had to be guessed.
    """
    wiring = Wiring(summary, setup)
    tape = wiring.run()
    return tape, tuple(wiring.warnings)
