"""Training steps of a rebuilt network, replayed through the caching allocator of a 40 GB card.

What cuDNN takes as scratch decides a fifth of a CNN's peak and depends on the algorithm its heuristics pick. Two
families explain the measurements to a few MiB: tensor-core kernels that work on channels-last copies of input, output
and weights, and, for the weight gradient of layers with few channels, non-fused Winograd F(4x4, 3x3), which
transforms every 4x4 tile into 6x6 = 36 numbers. Each hypothesis is replayed; which one holds is learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gpumemnet.allocator.blocks import Block
from gpumemnet.allocator.caching import CachingAllocator
from gpumemnet.evaluate.peer_graph import Node
from gpumemnet.units import KIB, MIB

FLOAT_BYTES = 4
SAMPLES_PER_EPOCH = 4096
"""Of the generator's dummy dataset; its last batch is the remainder."""
SUMMARY_SAMPLES = 2
"""torchsummary runs this many samples forward, on the GPU, before training."""
CUBLAS_BYTES = 8 * MIB + 128 * KIB
"""PyTorch's cuBLAS workspace before Hopper (aten/src/ATen/cuda/CublasHandlePool.cpp), taken by the first product."""
CARD_BYTES = 38_800 * MIB
"""What an A100 of 40 GB (40,536 MiB) leaves to the allocator beside a context and libraries of about 1,700 MiB."""
WINOGRAD_FEW_CHANNELS = 256
"""Up to here the measured weight gradients look like Winograd, beyond like channels-last copies."""
_KEEP_INPUT = {
    "GELU",
    "SiLU",
    "Mish",
    "Softplus",
    "ELU",
    "SELU",
    "LeakyReLU",
    "PReLU",
    "norm",
    "pool",
    "conv",
    "linear",
}
_KEEP_OUTPUT = {"ReLU", "Tanh", "softmax", "Softmax"}

Workspace = Callable[[Node, Node, int, str], int]
"""(convolution, its input, batch, "forward" | "input" | "weight") -> scratch bytes."""


class CardFull(Exception):
    """The card has no room for another segment."""


class CardAllocator(CachingAllocator):
    """The caching allocator on a card that ends: cached segments are given back, then it fails."""

    def __init__(self, card_bytes: int | None) -> None:
        super().__init__()
        self.card_bytes = card_bytes
        self.retries = 0

    def _reserve(self, n_bytes: int) -> None:
        if self.card_bytes is not None and self.reserved_bytes + n_bytes > self.card_bytes:
            self.retries += 1
            self.empty_cache()
            if self.reserved_bytes + n_bytes > self.card_bytes:
                raise CardFull
        super()._reserve(n_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPeaks:
    """Highest values over all steps.

    Attributes:
        reserved_mib: In segments.
        allocated_mib: In blocks.
        retries: Times that cached segments had to be given back.
        full: True if it ran out of memory.
    """

    reserved_mib: float
    allocated_mib: float
    retries: int
    full: bool


def no_workspace(conv: Node, source: Node, batch: int, phase: str) -> int:
    """Return 0: convolutions without scratch.

    Args:
        conv: The convolution.
        source: The layer that it reads.
        batch: Samples.
        phase: "forward", "data" or "weight": which of its passes.
    """
    return 0


def copies_workspace(conv: Node, source: Node, batch: int, phase: str) -> int:
    """Return the bytes of channels-last copies of input, output and weights.

    Args:
        conv: The convolution.
        source: The layer that it reads.
        batch: Samples.
        phase: "forward", "data" or "weight": which of its passes.
    """
    return FLOAT_BYTES * (batch * (source.elements + conv.elements) + conv.params)


def winograd_workspace(conv: Node, source: Node, batch: int, phase: str) -> int:
    """Return the bytes of all transformed 4x4 tiles of input and output, and of the weights.

    Args:
        conv: The convolution.
        source: The layer that it reads.
        batch: Samples.
        phase: "forward", "data" or "weight": which of its passes.
    """
    if conv.kernel != 3:
        return 0
    tiles = batch * math.ceil(math.sqrt(conv.area) / 4) ** 2
    return FLOAT_BYTES * 36 * (tiles * (source.channels + conv.channels) + source.channels * conv.channels)


def winograd_weight_workspace(conv: Node, source: Node, batch: int, phase: str) -> int:
    """Return `winograd_workspace` for the weight gradient alone.

    Args:
        conv: The convolution.
        source: The layer that it reads.
        batch: Samples.
        phase: "forward", "data" or "weight": which of its passes.
    """
    return winograd_workspace(conv, source, batch, phase) if phase == "weight" else 0


def mixed_workspace(conv: Node, source: Node, batch: int, phase: str) -> int:
    """Return Winograd's scratch for the weight gradient of narrow layers, channels-last copies for the rest.

    Args:
        conv: The convolution.
        source: The layer that it reads.
        batch: Samples.
        phase: "forward", "data" or "weight": which of its passes.
    """
    if phase == "weight" and conv.channels <= WINOGRAD_FEW_CHANNELS:
        return winograd_workspace(conv, source, batch, phase)
    return copies_workspace(conv, source, batch, phase)


HYPOTHESES: dict[str, Workspace] = {
    "none": no_workspace,
    "copies": copies_workspace,
    "winograd": winograd_workspace,
    "winograd_weight": winograd_weight_workspace,
    "mixed": mixed_workspace,
}


def replay_steps(
    nodes: list[Node], batch_size: int, workspace: Workspace, *, card_bytes: int | None = None
) -> StepPeaks:
    """Replay what the generator's script does: a summary's forward pass, full batches, and the last one.

    Args:
        nodes: The network.
        batch_size: Samples per step.
        workspace: Scratch of its convolutions.
        card_bytes: Where the card ends; None for a card without end.

    Returns:
        The peaks.
    """
    allocator = CardAllocator(card_bytes)
    last = SAMPLES_PER_EPOCH % batch_size
    batches = [batch_size, batch_size, *([last] if last else []), batch_size]
    full = False
    try:
        _train(_Step(nodes, allocator, workspace), batches)
    except CardFull:
        full = True
    return StepPeaks(
        reserved_mib=allocator.reserved_peak_bytes / MIB,
        allocated_mib=allocator.allocated_peak_bytes / MIB,
        retries=allocator.retries,
        full=full,
    )


def _train(step: _Step, batches: list[int]) -> None:
    allocator = step.allocator
    weights = [n_bytes for node in step.nodes for n_bytes in weight_bytes(node)]
    for n_bytes in weights:
        allocator.malloc(n_bytes)
    step.run(SUMMARY_SAMPLES, backward=False)
    for number, batch in enumerate(batches):
        step.zero_grad()
        step.run(batch)
        if number == 0:  # Adam makes its two states in the first step
            for n_bytes in weights:
                allocator.malloc(n_bytes)
                allocator.malloc(n_bytes)
        for block in [allocator.malloc(n_bytes) for n_bytes in weights]:  # foreach temporaries
            allocator.free(block)


def weight_bytes(node: Node) -> list[int]:
    """Return the bytes of each of a node's parameters: a weight and a bias, of one number per channel each."""
    if node.params <= node.channels:
        return [FLOAT_BYTES * node.params] if node.params else []
    return [FLOAT_BYTES * (node.params - node.channels), FLOAT_BYTES * node.channels]


class _Step:
    """Forward and backward over one graph."""

    def __init__(self, nodes: list[Node], allocator: CardAllocator, workspace: Workspace) -> None:
        self.nodes, self.allocator, self.workspace = nodes, allocator, workspace
        self.weight_gradients: list[Block | None] = []
        self.cublas: Block | None = None

    def zero_grad(self) -> None:
        for block in self.weight_gradients:
            self.allocator.free(block)
        self.weight_gradients = []

    def run(self, batch: int, *, backward: bool = True) -> None:
        self.batch = batch
        self.output: dict[int, Block | None] = {0: self._tensor(0)}
        self.references = [1] * len(self.nodes)
        self.kept: list[tuple[int, ...]] = [()] * len(self.nodes)
        self.own: dict[int, Block | None] = {}
        self._forward()
        if backward:
            self._backward()
        for block in (*self.output.values(), *self.own.values()):
            self.allocator.free(block)

    def _tensor(self, number: int) -> Block | None:
        return self.allocator.malloc(FLOAT_BYTES * self.batch * self.nodes[number].elements)

    def _scratch(self, conv: Node, source: Node, phase: str) -> None:
        n_bytes = self.workspace(conv, source, self.batch, phase)
        try:
            self.allocator.free(self.allocator.malloc(n_bytes))
        except CardFull:
            return  # PyTorch then takes cuDNN's next algorithm, down to one without scratch

    def _release(self, number: int) -> None:
        self.references[number] -= 1
        if not self.references[number]:
            self.allocator.free(self.output.pop(number, None))

    def _forward(self) -> None:
        readers = [0] * len(self.nodes)
        for node in self.nodes:
            for number in node.inputs:
                readers[number] += 1
        for index, node in enumerate(self.nodes[1:], start=1):
            self.output[index] = self._tensor(index)
            if node.kind == "linear" and not self.cublas:
                self.cublas = self.allocator.malloc(CUBLAS_BYTES)
            if node.kind == "conv":
                self._scratch(node, self.nodes[node.inputs[0]], "forward")
            elif node.kind == "dropout":  # a mask of one byte each
                self.own[index] = self.allocator.malloc(self.batch * node.elements)
            if node.kind in _KEEP_INPUT:
                self.kept[index] = (node.inputs[0],)
            elif node.kind in _KEEP_OUTPUT:
                self.kept[index] = (index,)
            for number in self.kept[index]:
                self.references[number] += 1
            for number in node.inputs:
                readers[number] -= 1
                if not readers[number] and number:
                    self._release(number)

    def _backward(self) -> None:
        last = len(self.nodes) - 1
        loss = self._tensor(last)
        gradients: dict[int, Block | None] = {last: self._tensor(last)}
        self.allocator.free(loss)
        for index in range(last, 0, -1):
            node = self.nodes[index]
            arrived = gradients.pop(index)
            if node.kind == "add":
                gradients.setdefault(node.inputs[1], self._tensor(node.inputs[1]) if node.inputs[1] else None)
                gradients[node.inputs[0]], arrived = arrived, None
            elif node.kind == "conv":
                self._conv_backward(index, gradients)
            else:
                self._weight_gradients(index)
                for number in node.inputs:
                    self._give(number, gradients)
            for number in self.kept[index]:
                self._release(number)
            self.allocator.free(self.own.pop(index, None))
            self.allocator.free(arrived)

    def _conv_backward(self, index: int, gradients: dict[int, Block | None]) -> None:
        node = self.nodes[index]
        number = node.inputs[0]
        if number:
            self._give(number, gradients)
            self._scratch(node, self.nodes[number], "input")
        self._weight_gradients(index)
        self._scratch(node, self.nodes[number], "weight")

    def _give(self, number: int, gradients: dict[int, Block | None]) -> None:
        if not number:
            return  # the input batch needs no gradient
        fresh = self._tensor(number)
        if number in gradients:
            self.allocator.free(fresh)  # added to the gradient that is there
        else:
            gradients[number] = fresh

    def _weight_gradients(self, index: int) -> None:
        self.weight_gradients += [
            self.allocator.malloc(n_bytes) for n_bytes in weight_bytes(self.nodes[index])
        ]
