"""Convert a tape's training step to allocator calls, in order.

The calls are the same for every step, so they are listed once and then repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpumemnet.summaries.graph.tape import Op, Tape
from gpumemnet.summaries.replay.lifetimes import Lifetimes, lifetimes

BORROW = -1
"""Key of memory that is allocated and freed at once; other keys are not negative."""

Call = tuple[int, int | None]
"""(key, bytes) allocates, (key, None) frees what was last allocated under that key, (BORROW, bytes) does both."""


class Schedule(NamedTuple):
    """The calls of one training step.

    Attributes:
        forward: Calls of the forward pass.
        backward: Calls of the backward pass.
        keys: Exclusive upper bound on keys; the last one is never allocated.
        output: Key of the model's output, which outlives the step; the last key if there is none.
        gradients: Keys of the weights' gradients, which outlive the backward pass.
    """

    forward: list[Call]
    backward: list[Call]
    keys: int
    output: int
    gradients: list[int]


def schedule(tape: Tape, *, checkpointing: bool) -> Schedule:
    """List the allocator calls of one training step.

    Args:
        tape: The forward pass.
        checkpointing: Whether blocks keep only their inputs and are recomputed in backward.
    """
    plan = lifetimes(tape, checkpointing=checkpointing)
    step = _ScheduledStep(tape, plan)
    forward = step.forward()
    backward = step.backward()
    keys = step.weight + len(tape.parameters) + 1
    return Schedule(
        forward=forward,
        backward=backward,
        keys=keys,
        output=plan.output % keys,
        gradients=list(step.gradients),
    )


class _ScheduledStep:
    """One forward and backward pass; keys are tensor numbers, with an offset outside the first forward."""

    def __init__(self, tape: Tape, plan: Lifetimes) -> None:
        self.tape = tape
        self.plan = plan
        self.again = len(tape.sizes)  # + number: a tensor of a recomputed block
        self.gradient = 2 * self.again  # + number: the gradient of a tensor
        self.weight = 3 * self.again  # + number: the gradient of a weight
        self.calls: list[Call] = []
        self.live: set[int] = set()
        self.keepers = plan.keepers.copy()
        self.graded: set[int] = set()
        self.gradients: dict[int, None] = {}
        self.fixed = tape.constants | tape.detached

    def forward(self) -> list[Call]:
        """Run all operations, keep what backward needs, and free other tensors after their last reader."""
        live, sizes, block_of, dying = self.live, self.tape.sizes, self.plan.block_of, self.plan.dying
        calls: list[Call] = []
        for index, op in enumerate(self.tape.ops):
            output = op.output
            if output not in live:
                live.add(output)
                calls.append((output, sizes[output]))
            shift = self.again if block_of[index] else 0
            for number in op.extra:
                calls.append((shift + number, sizes[number]))
            if op.forward_workspace_bytes:
                calls.append((BORROW, op.forward_workspace_bytes))
            if not shift:
                live.update(op.extra)
            else:
                calls.extend((shift + number, None) for number in op.extra)
            for number in dying.get(index, ()):
                if number in live:
                    live.remove(number)
                    calls.append((number, None))
        return calls

    def backward(self) -> list[Call]:
        """Run the gradients; at the end only the output and the weights' gradients remain."""
        plan, ops, detached = self.plan, self.tape.ops, self.tape.detached
        calls = self.calls
        made: set[int] = set()
        inner: dict[int, int] = {}
        running = 0
        for index in range(len(ops) - 1, -1, -1):
            op, block = ops[index], plan.block_of[index]
            if block != running:
                self._free(made, self.again)
                self._leave(running)
                running, made, inner = block, set(), {}
                if block:
                    made, inner = self._run_again(block), plan.repeats[block].keepers.copy()
            if op.output not in detached:
                self._gradients(op)
            if not block:
                self._release(op.saved)
                continue
            for number in op.saved:
                inner[number] -= 1
                if not inner[number] and number in made:
                    made.remove(number)
                    calls.append((self.again + number, None))
        self._leave(running)
        self._free(made, self.again)
        self._free(self.graded, self.gradient)
        self._free(self.live - {plan.output}, 0)
        return calls

    def _run_again(self, block: int) -> set[int]:
        """Recompute a block; return the tensors it made that backward needs."""
        sizes, repeat, calls = self.tape.sizes, self.plan.repeats[block], self.calls
        made: set[int] = set()
        for index in repeat.ops:
            op = self.tape.ops[index]
            for number in (op.output, *op.extra):
                if number not in made:
                    made.add(number)
                    calls.append((self.again + number, sizes[number]))
            if op.forward_workspace_bytes:
                calls.append((BORROW, op.forward_workspace_bytes))
            for number in (*op.inputs, op.output):
                if repeat.last_use[number] == index and number in made and number not in repeat.keepers:
                    made.remove(number)
                    calls.append((self.again + number, None))
        return made

    def _gradients(self, op: Op) -> None:
        """Run the backward of one operation."""
        call, sizes, graded, shift = self.calls.append, self.tape.sizes, self.graded, self.gradient
        output, workspace = op.output, op.data_workspace_bytes
        if output in graded:
            graded.remove(output)
        else:
            call((shift + output, sizes[output]))
        for number in op.inputs:
            if number in self.fixed:
                continue
            if number == output:  # it was overwritten: the new gradient replaces the old one
                graded.add(number)
                call((BORROW, sizes[number]))
            elif number in graded:
                call((BORROW, sizes[number]))  # accumulated in place into the existing gradient
            else:
                graded.add(number)
                call((shift + number, sizes[number]))
            if workspace:
                call((BORROW, workspace))
        for weight in op.weights:
            key = self.weight + weight
            call((BORROW if key in self.gradients else key, self.tape.parameters[weight]))
            self.gradients[key] = None
        if op.weight_workspace_bytes:
            call((BORROW, op.weight_workspace_bytes))
        if output not in op.inputs:
            call((shift + output, None))

    def _release(self, numbers: Iterable[int]) -> None:
        """Release what an operation kept; free tensors that are no longer kept."""
        keepers = self.keepers
        for number in numbers:
            keepers[number] -= 1
            if not keepers[number] and number in self.live and number != self.plan.output:
                self.live.remove(number)
                self.calls.append((number, None))

    def _leave(self, block: int) -> None:
        """Release the outside tensors that a recomputed block read."""
        if block:
            self._release(self.plan.repeats[block].outside)

    def _free(self, numbers: Iterable[int], shift: int) -> None:
        self.calls.extend((shift + number, None) for number in numbers)
