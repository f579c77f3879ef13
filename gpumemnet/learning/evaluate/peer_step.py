"""Replay training steps of a rebuilt network through the caching allocator of a 40 GB GPU."""

from __future__ import annotations

from dataclasses import dataclass

from gpumemnet.gpu_memory.allocator.blocks import Block
from gpumemnet.learning.evaluate.gpu import GpuAllocator, GpuFull
from gpumemnet.learning.evaluate.peer_graph import Operation
from gpumemnet.learning.evaluate.peer_workspaces import FLOAT_BYTES, Workspace
from gpumemnet.units import KIB, MIB

SAMPLES_PER_EPOCH = 4096
"""Samples of the generator's dummy dataset; its last batch is the remainder."""
SUMMARY_SAMPLES = 2
"""torchsummary runs this many samples forward, on the GPU, before training."""
CUBLAS_BYTES = 8 * MIB + 128 * KIB
"""PyTorch's cuBLAS workspace before Hopper (aten/src/ATen/cuda/CublasHandlePool.cpp), allocated by the first one."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPeaks:
    """Highest values over all steps.

    Attributes:
        reserved_mib: Memory in segments.
        allocated_mib: Memory in blocks.
        retries: Number of times that cached segments had to be freed.
        full: Whether it ran out of memory.
    """

    reserved_mib: float
    allocated_mib: float
    retries: int
    full: bool


def replay_steps(
    nodes: list[Operation], batch_size: int, workspace: Workspace, *, gpu_bytes: int | None = None
) -> StepPeaks:
    """Replay the generator's script: a summary's forward pass, full batches, and the last one.

    Args:
        nodes: The network.
        batch_size: Samples per step.
        workspace: Workspace of its convolutions.
        gpu_bytes: Memory limit of the GPU; None for unlimited.

    Returns:
        The peaks.
    """
    allocator = GpuAllocator(gpu_bytes)
    last = SAMPLES_PER_EPOCH % batch_size
    batches = [batch_size, batch_size, *([last] if last else []), batch_size]
    full = False
    try:
        _train(_PeerStep(nodes, allocator, workspace), batches)
    except GpuFull:
        full = True
    return StepPeaks(
        reserved_mib=allocator.reserved_peak_bytes / MIB,
        allocated_mib=allocator.allocated_peak_bytes / MIB,
        retries=allocator.retries,
        full=full,
    )


def _train(step: _PeerStep, batches: list[int]) -> None:
    allocator = step.allocator
    weights = [n_bytes for node in step.nodes for n_bytes in weight_bytes(node)]
    for n_bytes in weights:
        allocator.malloc(n_bytes)
    step.run(SUMMARY_SAMPLES, backward=False)
    for number, batch in enumerate(batches):
        step.zero_grad()
        step.run(batch)
        if number == 0:  # Adam creates its two states in the first step
            for n_bytes in weights:
                allocator.malloc(n_bytes)
                allocator.malloc(n_bytes)
        for block in [allocator.malloc(n_bytes) for n_bytes in weights]:  # foreach temporaries
            allocator.free(block)


def weight_bytes(node: Operation) -> list[int]:
    """Return the bytes of each parameter of a node: a weight, and a bias of one number per channel."""
    if node.params <= node.channels:
        return [FLOAT_BYTES * node.params] if node.params else []
    return [FLOAT_BYTES * (node.params - node.channels), FLOAT_BYTES * node.channels]


class _PeerStep:
    """Forward and backward over one graph."""

    def __init__(self, nodes: list[Operation], allocator: GpuAllocator, workspace: Workspace) -> None:
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

    def _scratch(self, conv: Operation, source: Operation, phase: str) -> None:
        n_bytes = self.workspace(conv, source, self.batch, phase)
        try:
            self.allocator.free(self.allocator.malloc(n_bytes))
        except GpuFull:
            return  # PyTorch then uses cuDNN's next algorithm, down to one without workspace

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
            self._keep(index, node)
            for number in node.inputs:
                readers[number] -= 1
                if not readers[number] and number:
                    self._release(number)

    def _keep(self, index: int, node: Operation) -> None:
        """Keep what the backward pass of a node reads."""
        if node.kind in _KEEP_INPUT:
            self.kept[index] = (node.inputs[0],)
        elif node.kind in _KEEP_OUTPUT:
            self.kept[index] = (index,)
        for number in self.kept[index]:
            self.references[number] += 1

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
            self.allocator.free(fresh)  # added to the existing gradient
        else:
            gradients[number] = fresh

    def _weight_gradients(self, index: int) -> None:
        self.weight_gradients += [
            self.allocator.malloc(n_bytes) for n_bytes in weight_bytes(self.nodes[index])
        ]
