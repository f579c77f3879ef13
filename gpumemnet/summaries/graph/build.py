"""Build a tape from layers: find each layer's input tensor, and the operations that no summary shows.

A summary lists modules, not the graph. The input of a layer is found, in this order: the output of the layer before,
if the sizes agree; the latest tensor of the right shape (a branch); else a new tensor that some function must have
made (a concatenation, a product with a gate). Residual additions add no saved tensor: the sum replaces one of its
terms.
"""

from __future__ import annotations

import math
from collections import Counter

from gpumemnet.names import Group, Source
from gpumemnet.summaries.collapsed_blocks.scale import UNKNOWN_PERCENT, Outputs, Stretch, better
from gpumemnet.summaries.graph import containers, functional_ops, inputs, loss, weighted
from gpumemnet.summaries.graph.attention import convolution_sites, head_rows
from gpumemnet.summaries.graph.attention import functional as functional_attention
from gpumemnet.summaries.graph.attention import shown as attention
from gpumemnet.summaries.graph.attention.forms import AttentionForm, attend
from gpumemnet.summaries.graph.attention.site import AttentionSite
from gpumemnet.summaries.graph.attention.sites import find_sites, head_width
from gpumemnet.summaries.graph.builder import ContainerPath, TapeBuilder
from gpumemnet.summaries.graph.tape import Op, Tape
from gpumemnet.summaries.graph.unknown import about_hidden, steps_through_time
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.kinds import Kind
from gpumemnet.summaries.texts.records import Layer, ModelSummary
from gpumemnet.summaries.texts.settle import drops, is_idle
from gpumemnet.summaries.texts.widths import of_channels
from gpumemnet.training import TrainingSetup

_UNKNOWN = Kind(group=Group.UNKNOWN, saves_input=True)
_UNKNOWN_NORM = _UNKNOWN._replace(copies=1)
"""A library's composite norm or scale: the factor of its weight is kept in addition to its input."""
_RELU_INSIDE = ("TransformerEncoderLayer", "TransformerDecoderLayer")
"""PyTorch's layers call their activation as a function, so no row shows it."""
_LISTS = ("ModuleList", "Sequential")


def build(summary: ModelSummary, setup: TrainingSetup) -> tuple[Tape, tuple[str, ...]]:
    """Build the tape of one training step.

    Args:
        summary: Layers with shapes.
        setup: The training setup.

    Returns:
        The tape, and warnings about guesses.
    """
    stretch = Stretch()
    walk = _Walk(summary, setup, stretch)
    while (next_stretch := better(stretch, walk.outputs, summary, walk.builder.batch)) is not None:
        stretch = next_stretch
        walk = _Walk(summary, setup, stretch)
    tape = walk.builder.tape
    tape.hidden_percent = (
        max(stretch.percent, UNKNOWN_PERCENT) if steps_through_time(summary) else stretch.percent
    )
    guesses = [f"unknown layer '{name}' ({n}x): counted by its shapes" for name, n in walk.unknown.items()]
    return tape, (*summary.warnings, *guesses, *about_hidden(tape, summary))


class _Walk:
    """One pass through the layers of a summary.

    Attributes:
        builder: The tape under construction.
        outputs: Counted outputs that torchinfo's total covers.
        unknown: Number of layers of each unknown class.
    """

    def __init__(self, summary: ModelSummary, setup: TrainingSetup, stretch: Stretch) -> None:
        self.builder = TapeBuilder(setup, summary)
        self.outputs = Outputs()
        self.unknown: Counter[str] = Counter()
        self._summary = summary
        self._stretch = stretch
        self._reading: int | None = None  # the tensor that all projections of one attention read
        self._blocks: dict[ContainerPath, int] = {}
        self._drops = drops(summary)
        self._numbers: dict[int, int] | None = None
        if setup.gradient_checkpointing and summary.format == Source.TORCHSUMMARY:
            from gpumemnet.summaries.graph import checkpoint_blocks  # few texts need it

            self._numbers = checkpoint_blocks.repeated(summary.layers)
        self._layers(summary.layers)
        self._missing_parameters()
        loss.cross_entropy(self.builder, summary.root)

    def _layers(self, layers: tuple[Layer, ...]) -> None:
        """Add these layers in order."""
        builder = self.builder
        sites = find_sites(layers) | convolution_sites.find(layers)
        builder.head_width = head_width(sites, layers) or builder.head_width
        members = {index: site for site in sites.values() for index in site.projections}
        skip: set[int] = set()
        outputs: dict[int, int] = {}
        for index, layer in enumerate(layers):
            if index in skip:
                continue
            self._note_block(index, layer)
            kind = kinds.find(layer.kind)
            if (kind is None or layer.is_block) and functional_attention.runs(builder, layer):
                skip |= functional_attention.rows(builder, layers, index)
                continue
            if layer.is_block:
                self._container(layer)
                continue
            if layer.kind == "parameter" or not layer.runs:
                builder.parameters(layer)
                continue
            if layer.kind == "multiheadattention":
                builder.current = attention.module(builder, layer)
                continue
            site = members.get(index)
            if site is not None and index == site.projections[0]:
                self._reading = None
            self._leaf(layer, self._kind(layer, kind), shared=site is not None)
            if site is None:
                continue
            outputs[index] = builder.current
            branches = head_rows.pooled(layers, layer.path, index) if len(site.projections) == 1 else ()
            if branches:
                self._pooled(layers, branches)
                skip.update(*branches)
            elif index == site.projections[-1] and builder.current >= 0:
                skip |= self._attention(site, [outputs[at] for at in site.projections], layers)

    def _attention(self, site: AttentionSite, projected: list[int], layers: tuple[Layer, ...]) -> set[int]:
        """Add the attention between projections and what follows them; return the rows that it stands for."""
        self.builder.current = attention.at_site(self.builder, site, projected, layers, drops=self._drops)
        for at in site.over:
            self.builder.parameters(layers[at])
        return {*site.over} if site.scores is None else {*site.over, site.scores}

    def _note_block(self, index: int, layer: Layer) -> None:
        """Record the repeated block that a row belongs to."""
        if self._numbers is not None:
            self.builder.block = self._numbers.get(index, 0)
        elif layer.path:
            self._enter(layer.path)

    def _enter(self, path: ContainerPath) -> None:
        """Record the running repeated block: the outermost container in a list or sequence of containers."""
        if self.builder.guess is not None:
            return
        for at in range(len(path) - 1):
            if path[at][0] in _LISTS:
                self.builder.block = self._blocks.setdefault(path[: at + 2], len(self._blocks) + 1)
                return
        self.builder.block = 0

    def _container(self, layer: Layer) -> None:
        """Add a container's contents if the text hides them; else end it."""
        builder = self.builder
        if not layer.params:
            builder.current = containers.ended(builder, layer)
            return
        inside = containers.hidden_layers(builder, layer, self._summary, times=self._stretch.times)
        if inside is None:
            builder.parameters(layer)
            return
        builder.tape.guessed += len(inside)
        with builder.guessing(self._stretch):
            self._layers(inside)

    def _leaf(self, layer: Layer, kind: Kind, *, shared: bool) -> None:
        """Add a layer; `shared` ones, the projections of one attention, read the same tensor."""
        builder = self.builder
        if kind.group is Group.ACTIVATION and _inside_activation(layer):
            return
        if not layer.output_shapes:
            builder.parameters(layer)
            return
        out = inputs.unfolded(builder, layer, kind, builder.scaled(layer.output_shapes[0]))
        builder.enter(layer.path)
        source = inputs.find(builder, layer, kind, out)
        for depth in range(len(layer.path)):
            builder.entries.setdefault(layer.path[: depth + 1], source)
        if shared:
            source = self._reading = source if self._reading is None else self._reading
        if kind.view or (kind.group is Group.DROPOUT and is_idle(layer)):
            builder.current = source
            builder.parameters(layer)
            return
        if kind.group is Group.LINEAR:
            source = functional_ops.activated(builder, source, out)
        kind = kinds.padded(kind, layer.kind, strided=_shrinks(builder.shapes[source], out))
        channels = weighted.channels(kind, out) if layer.params else 0
        builder.current = builder.operation(kind, source, out, builder.parameters(layer, channels))
        if self._summary.output_bytes:
            self.outputs.count(layer, math.prod(out), inside=builder.guess is not None)
        if kind.group in weighted.GROUPS:
            weighted.add(builder, layer, kind, source, out)
        in_layer = kind.group is Group.LINEAR and layer.path and layer.path[-1][0] in _RELU_INSIDE
        if in_layer and out[-1] > builder.shapes[source][-1]:
            builder.current = builder.operation(kinds.KINDS["relu"], builder.current, out)

    def _kind(self, layer: Layer, kind: Kind | None) -> Kind:
        """Return a layer's behaviour; record kinds missing from the table."""
        if kind is None:
            if kinds.is_container(layer.kind) and not layer.params:
                return kinds.KINDS["identity"]  # an empty Sequential, such as the shortcut of a ResNet
            self.unknown[layer.name.split("-")[0].split(":")[0].split(" ")[0]] += 1
            return _UNKNOWN_NORM if layer.output_shapes and of_channels(layer) else _UNKNOWN
        if kind.group is Group.ACTIVATION:
            holder = layer.path[-1][0] if layer.path else ""
            # Convolutional networks usually use ReLU(inplace=True); only print(model) shows the argument.
            ops, shows = self.builder.tape.ops, self.builder.format is Source.MODULE_REPR
            usual = bool(ops) and ops[-1].group in (Group.CONV, Group.BATCHNORM) and not shows
            return kinds.in_place(kind, layer.kind, holder, layer.args, usual=usual)
        return kind

    def _pooled(self, layers: tuple[Layer, ...], branches: tuple[range, ...]) -> None:
        """Add attention with queries, keys and values copied out of a joint projection and pooled by rows."""
        builder = self.builder
        joint, found = builder.current, []
        width, head = max(builder.shapes[joint][-1] // 3, 1), 1
        for branch in branches:
            pools = layers[branch[0]]
            made = builder.scaled((pools.input_shapes or pools.output_shapes)[0])
            part = made if pools.input_shapes else head_rows.unpooled(builder.elements[joint] // 3, made)
            head = part[1]
            copy = builder.current = builder.tensor(part, builder.items[joint])
            builder.add(Op(inputs=(joint,), output=copy, group=Group.FUNCTION))
            for at in branch:
                self._leaf(layers[at], self._kind(layers[at], kinds.find(layers[at].kind)), shared=False)
            last = builder.current
            builder.shapes[last] = (builder.batch, builder.elements[last] // (width * builder.batch), width)
            found.append(last)
        heads = max(width // max(head, 1), 1)
        builder.current = attend(builder, found, AttentionForm(eager=True, heads=heads))

    def _missing_parameters(self) -> None:
        """Add parameters that only the text's total reveals."""
        total = self._summary.total_params
        counted = sum(layer.params or 0 for layer in self._summary.layers)
        if total is not None and total > counted:
            self.builder.tape.parameters.append((total - counted) * self.builder.high)


def _shrinks(ins: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Return whether an image is smaller than its source."""
    return len(ins) == len(out) > 2 and ins[-1] > out[-1]


def _inside_activation(layer: Layer) -> bool:
    """Return whether an activation's module holds this one, so that it is counted there (StarReLU)."""
    holder = kinds.KINDS.get(kinds.canonical(layer.path[-1][0])) if layer.path else None
    return holder is not None and holder.group is Group.ACTIVATION
