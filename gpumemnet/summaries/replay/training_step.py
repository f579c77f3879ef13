"""Replay a tape's training step through the caching allocator: forward, backward, optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpumemnet.gpu_memory.allocator.blocks import Block
from gpumemnet.gpu_memory.allocator.caching import CachingAllocator
from gpumemnet.summaries.graph.tape import Tape
from gpumemnet.summaries.replay.optimizer_memory import OptimizerMemory, runs
from gpumemnet.summaries.replay.schedule import Call, schedule


class ReplayResult(NamedTuple):
    """Results of a replay.

    Attributes:
        allocated_peak_bytes: PyTorch's max_memory_allocated.
        reserved_bytes: PyTorch's max_memory_reserved.
        forward_end_bytes: Allocated when the forward pass is over (steady state).
        optimizer_bytes: Optimizer states, which are permanent.
        step_bytes: Peak of the temporaries of an optimizer step.
    """

    allocated_peak_bytes: int
    reserved_bytes: int
    forward_end_bytes: int
    optimizer_bytes: int
    step_bytes: int


def replay(tape: Tape, optimizer: OptimizerMemory, *, checkpointing: bool = False) -> ReplayResult:
    """Run two training steps of a tape.

    Args:
        tape: The forward pass.
        optimizer: States and temporaries; the first step makes the states, so the second is the steady state.
        checkpointing: Whether blocks keep only their inputs and are recomputed in backward.

    Returns:
        Peaks over both steps.
    """
    allocator = CachingAllocator()
    parameters = runs(tape.parameters)
    allocator.malloc_all(parameters)
    allocator.malloc_all(runs((*tape.frozen, *(tape.sizes[number] for number in tape.constants))))
    step = schedule(tape, checkpointing=checkpointing)
    blocks: list[Block | None] = [None] * step.keys
    output: Block | None = None
    forward_end = 0
    for first in (True, False):
        cast = allocator.malloc(tape.cast_bytes)
        _run(step.forward, allocator, blocks)
        allocator.free(output)  # the last step's output lives until this step's replaces it
        forward_end = allocator.allocated_bytes
        _run(step.backward, allocator, blocks)
        output = blocks[step.output]
        allocator.free(cast)
        if first:
            allocator.malloc_all(optimizer.state_runs(parameters))
        temporary = allocator.malloc_all(optimizer.step_runs(parameters))
        if first:
            allocator.free_all([*temporary, *(blocks[key] for key in step.gradients)])
    return ReplayResult(
        allocated_peak_bytes=allocator.allocated_peak_bytes,
        reserved_bytes=allocator.reserved_peak_bytes,
        forward_end_bytes=forward_end,
        optimizer_bytes=optimizer.state_bytes(tape.parameters),
        step_bytes=optimizer.step_bytes(tape.parameters),
    )


def _run(calls: Iterable[Call], allocator: CachingAllocator, blocks: list[Block | None]) -> None:
    """Make calls; `blocks` holds the last allocation of each key."""
    malloc, free, borrow = allocator.malloc, allocator.free, allocator.borrow
    for key, n_bytes in calls:
        if n_bytes is None:
            free(blocks[key])
        elif key < 0:
            borrow(n_bytes)
        else:
            blocks[key] = malloc(n_bytes)
