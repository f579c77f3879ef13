"""From a parsed summary to a tape: which tensor each layer reads, and the operations that no summary shows.

A summary lists modules, not the graph. The input of a layer is found, in this order: the output of the layer before,
if the sizes agree; the latest tensor of the right shape (a branch); else a new tensor that some function must have
made (a concatenation, a product with a gate). Residual additions add no kept tensor: the sum takes the place of one
of its terms.
"""

from __future__ import annotations

import math
from collections import Counter

from gpumemnet import attention, containers, kinds, loss, scratch, sources
from gpumemnet.hidden import Hidden
from gpumemnet.idle import is_idle
from gpumemnet.kinds import Kind
from gpumemnet.profile import UNTOLD_PERCENT
from gpumemnet.sites import Site, find_sites
from gpumemnet.summary import Layer, ModelSummary
from gpumemnet.tape import Tape
from gpumemnet.tape_builder import TapeBuilder
from gpumemnet.training import TrainingSetup

_UNKNOWN = Kind(group="unknown", saves_input=True)
_RELU_INSIDE = ("TransformerEncoderLayer", "TransformerDecoderLayer")
"""PyTorch's own layers call their activation as a function, so no row shows it."""

Path = tuple[tuple[str, str], ...]


class Wiring(TapeBuilder):
    """Walks through the layers of one summary; use `wire`.

    Attributes:
        summary: What is wired.
        current: The tensor that the last layer made; -1 before the first.
        entries: What the first layer of each container read.
        hidden: Counts and scales what hidden layers make.
        unknown: How often a layer of each unknown class came.
    """

    def __init__(self, summary: ModelSummary, setup: TrainingSetup, hidden: Hidden | None = None) -> None:
        super().__init__(setup, summary.batch_size)
        self.summary = summary
        self.hidden = hidden or Hidden()
        self.current = -1
        self.entries: dict[Path, int] = {}
        self.unknown: Counter[str] = Counter()
        self._reading: int | None = None  # the tensor that all projections of one attention read
        self._blocks: dict[Path, int] = {}
        self._numbers: dict[int, int] | None = None
        if setup.gradient_checkpointing and summary.format == "torchsummary":
            from gpumemnet import repeats  # few texts need it

            self._numbers = repeats.repeated(summary.layers)

    def run(self) -> Tape:
        """Wire every layer, then the loss."""
        self.layers(self.summary.layers)
        self._missing_parameters()
        loss.cross_entropy(self)
        return self.tape

    def layers(self, layers: tuple[Layer, ...]) -> None:
        """Wire these layers, one after the other."""
        sites = find_sites(layers)
        members = {index: site for site in sites.values() for index in site.projections}
        skip: set[int] = set()
        outputs: dict[int, int] = {}
        for index, layer in enumerate(layers):
            if index in skip:
                continue
            if self._numbers is None:
                self._enter(layer)
            else:
                self.block = self._numbers.get(index, 0)
            if layer.is_block:
                containers.block(self, layer)
                continue
            if layer.kind == "parameter" or not layer.runs:
                self.parameters(layer)
                continue
            if layer.kind == "multiheadattention":
                attention.module(self, layer)
                continue
            site = members.get(index)
            if site is not None and index == site.projections[0]:
                self._reading = None
            self._leaf(layer, shared=site is not None)
            if site is None:
                continue
            outputs[index] = self.current
            if index == site.projections[-1]:
                self._attend(site, outputs, layers)
                if site.scores is not None:
                    skip.add(site.scores)

    def _enter(self, layer: Layer) -> None:
        """Note which repeated block runs: the outermost container in a list or sequence of containers."""
        path = layer.path
        if not path or self.guess is not None:
            return
        for at in range(len(path) - 1):
            if path[at][0] in ("ModuleList", "Sequential"):
                self.block = self._blocks.setdefault(path[: at + 2], len(self._blocks) + 1)
                return
        self.block = 0

    def _leaf(self, layer: Layer, *, shared: bool = False) -> None:
        kind = kinds.find(layer.kind)
        if kind is None:
            self.unknown[layer.name.split("-")[0].split(":")[0].split(" ")[0]] += 1
            kind = _UNKNOWN
        elif kind.group == "activation":
            kind = kinds.in_place(kind, layer.kind, layer.path[-1][0] if layer.path else "", layer.args)
        if not layer.output_shapes:
            self.parameters(layer)
            return
        out = sources.unfolded(self, layer, kind, self.scaled(layer.output_shapes[0]))
        source = sources.find(self, layer, kind, out)
        for depth in range(len(layer.path)):
            self.entries.setdefault(layer.path[: depth + 1], source)
        if shared:
            source = self._reading = source if self._reading is None else self._reading
        if kind.view or (kind.group == "dropout" and is_idle(layer)):
            self.current = source
            self.parameters(layer)
            return
        self.current = self.operation(kind, source, out, self.parameters(layer, _channels(kind, out)))
        if self.summary.output_bytes:
            self.hidden.count(layer, math.prod(out), inside=self.guess is not None)
        if kind.group == "rnn":
            scratch.recurrent_reserve(self, layer, source, out)
        elif kind.group == "conv":
            scratch.convolution(self, layer, source, out)
        if self.amp and kind.group in ("conv", "linear", "rnn"):
            self.tape.cast_bytes += (layer.params or 0) * 2
        in_layer = kind.group == "linear" and layer.path and layer.path[-1][0] in _RELU_INSIDE
        if in_layer and out[-1] > self.shapes[source][-1]:
            self.current = self.operation(kinds.KINDS["relu"], self.current, out)

    def _attend(self, site: Site, outputs: dict[int, int], layers: tuple[Layer, ...]) -> None:
        projected = [outputs[index] for index in site.projections]
        scores = self.scaled(layers[site.scores].output_shapes[0]) if site.scores is not None else None
        dropped = site.scores is not None and kinds.group_of(layers[site.scores].kind) == "dropout"
        dropped = dropped and not is_idle(layers[site.scores or 0])
        self.current = attention.attend(self, projected, scores, eager=site.eager, dropout=dropped)

    def _missing_parameters(self) -> None:
        total = self.summary.total_params
        counted = sum(layer.params or 0 for layer in self.summary.layers)
        if total is not None and total > counted:
            self.tape.parameters.append((total - counted) * self.high)


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
    while (better := wiring.hidden.fitted(summary, wiring.batch)) is not None:
        wiring = Wiring(summary, setup, better)
        tape = wiring.run()
    tape.hidden_percent = round(100 * wiring.hidden.factor * wiring.hidden.times)
    unknown = [f"unknown layer '{name}' ({n}x): counted by its shapes" for name, n in wiring.unknown.items()]
    if tape.hidden_percent >= UNTOLD_PERCENT:
        unknown.append("the text hides nearly all layers; print it with torchinfo.summary(..., depth=12)")
    return tape, (*summary.warnings, *unknown)
