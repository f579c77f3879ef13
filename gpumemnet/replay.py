"""Replay a tape's training step through the caching allocator: forward, backward, optimizer."""

from __future__ import annotations

from dataclasses import dataclass

from gpumemnet.allocator import Block, CachingAllocator
from gpumemnet.optimizers import OptimizerMemory
from gpumemnet.tape import Op, Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay found.

    Attributes:
        allocated_peak_bytes: PyTorch's max_memory_allocated.
        reserved_bytes: PyTorch's max_memory_reserved.
        forward_end_bytes: Allocated when the forward pass is over (steady state).
    """

    allocated_peak_bytes: int
    reserved_bytes: int
    forward_end_bytes: int


def replay(tape: Tape, optimizer: OptimizerMemory, *, checkpointing: bool = False, steps: int = 2) -> Replay:
    """Run training steps of a tape.

    Args:
        tape: The forward pass.
        optimizer: States and temporaries; states are made by the first step, so the second is the steady one.
        checkpointing: Blocks keep their inputs only and run again in backward.
        steps: Steps to run.

    Returns:
        Peaks over all steps.
    """
    allocator = CachingAllocator()
    malloc, free = allocator.malloc, allocator.free
    for n_bytes in (*tape.parameters, *tape.frozen, *(tape.sizes[number] for number in tape.constants)):
        malloc(n_bytes)
    plan = _Plan(tape, checkpointing=checkpointing)
    output: Block | None = None
    forward_end = 0
    for step in range(steps):
        cast = malloc(tape.cast_bytes)
        pass_ = _Pass(tape, plan, allocator)
        pass_.forward()
        free(output)  # the last step's output lives until this one's replaces it
        forward_end = allocator.allocated_bytes
        output, gradients = pass_.backward()
        free(cast)
        if step == 0:
            for n_bytes in optimizer.state_bytes(tape.parameters):
                malloc(n_bytes)
        for block in [malloc(n_bytes) for n_bytes in optimizer.borrowed_bytes(tape.parameters)]:
            free(block)
        if step + 1 < steps:
            for block in gradients:
                free(block)
    return Replay(
        allocated_peak_bytes=allocator.allocated_peak_bytes,
        reserved_bytes=allocator.reserved_peak_bytes,
        forward_end_bytes=forward_end,
    )


class _Plan:
    """Who reads and who keeps each tensor; the same for every step."""

    def __init__(self, tape: Tape, *, checkpointing: bool) -> None:
        ops = tape.ops
        self.final = next((op.output for op in reversed(ops) if op.group != "loss"), -1)
        self.block_of = [op.block if checkpointing else 0 for op in ops]
        self.last_use: dict[int, int] = {}
        self.keepers: dict[int, int] = {}
        self.first_op: dict[int, int] = {}
        self.last_op: dict[int, int] = {}
        self.inner_last_use: dict[tuple[int, int], int] = {}
        self.inner_keepers: dict[int, dict[int, int]] = {}
        made_in: dict[int, int] = {}
        outside: dict[int, set[int]] = {}
        for index, op in enumerate(ops):
            block = self.block_of[index]
            for number in (*op.inputs, op.output):
                self.last_use[number] = index
            made_in[op.output] = block
            if not block:
                for number in op.saved:
                    self.keepers[number] = self.keepers.get(number, 0) + 1
                continue
            self.first_op.setdefault(block, index)
            self.last_op[block] = index
            for number in (*op.inputs, op.output, *op.extra):
                self.inner_last_use[block, number] = index
            inner = self.inner_keepers.setdefault(block, {})
            for number in op.saved:
                inner[number] = inner.get(number, 0) + 1
            outside.setdefault(block, set()).update(n for n in op.inputs if made_in.get(n) != block)
        for numbers in outside.values():
            for number in numbers:  # what a block reads from outside is kept for running it again
                self.keepers[number] = self.keepers.get(number, 0) + 1
        self.outside = outside


class _Pass:
    """One forward and backward pass."""

    def __init__(self, tape: Tape, plan: _Plan, allocator: CachingAllocator) -> None:
        self.tape = tape
        self.plan = plan
        self.allocator = allocator
        self.live: dict[int, Block | None] = {}
        self.keepers = dict(plan.keepers)

    def forward(self) -> None:
        """Run all operations, keep what backward needs, free the rest as soon as nobody reads it any more."""
        plan, live = self.plan, self.live
        keepers, final = self.keepers, plan.final
        malloc, free, sizes, last_use = (
            self.allocator.malloc,
            self.allocator.free,
            self.tape.sizes,
            plan.last_use,
        )
        for index, op in enumerate(self.tape.ops):
            if op.output not in live:
                live[op.output] = malloc(sizes[op.output])
            kept = not plan.block_of[index]
            extra = [malloc(sizes[number]) for number in op.extra]
            if op.forward_workspace_bytes:
                self.allocator.borrow(op.forward_workspace_bytes)
            if kept:
                live.update(zip(op.extra, extra, strict=True))
            else:
                for mask in extra:
                    free(mask)
            for number in (*op.inputs, op.output):
                if last_use[number] == index and number not in keepers and number != final and number in live:
                    free(live.pop(number))

    def _run_again(self, block: int) -> dict[int, Block | None]:
        """Recompute a block; return what it made and backward needs."""
        plan, sizes = self.plan, self.tape.sizes
        malloc, free = self.allocator.malloc, self.allocator.free
        made: dict[int, Block | None] = {}
        for index in range(plan.first_op[block], plan.last_op[block] + 1):
            if plan.block_of[index] != block:
                continue
            op = self.tape.ops[index]
            for number in (op.output, *op.extra):
                if number not in made:
                    made[number] = malloc(sizes[number])
            if op.forward_workspace_bytes:
                self.allocator.borrow(op.forward_workspace_bytes)
            for number in (*op.inputs, op.output):
                last = plan.inner_last_use[block, number] == index
                if last and number in made and number not in plan.inner_keepers[block]:
                    free(made.pop(number))
        return made

    def backward(self) -> tuple[Block | None, list[Block | None]]:
        """Run the gradients; return the output, which lives on, and the weights' gradients."""
        plan, live = self.plan, self.live
        free = self.allocator.free
        gradients: dict[int, Block | None] = {}
        weight_gradients: dict[int, Block | None] = {}
        made: dict[int, Block | None] = {}
        inner: dict[int, int] = {}
        running = 0
        for index in range(len(self.tape.ops) - 1, -1, -1):
            op = self.tape.ops[index]
            block = plan.block_of[index]
            if block != running:
                for left in made.values():
                    free(left)
                self._release(plan.outside.get(running, ()))
                running, made, inner = block, {}, {}
                if block:
                    made = self._run_again(block)
                    inner = dict(plan.inner_keepers[block])
            if op.output not in self.tape.detached:
                self._gradients(op, gradients, weight_gradients)
            if block:
                for number in op.saved:
                    inner[number] -= 1
                    if not inner[number] and number in made:
                        free(made.pop(number))
            else:
                self._release(op.saved)
        self._release(plan.outside.get(running, ()))
        output = live.pop(plan.final, None)
        for left in (*made.values(), *gradients.values(), *live.values()):
            free(left)
        return output, list(weight_gradients.values())

    def _release(self, numbers: tuple[int, ...] | set[int]) -> None:
        for number in numbers:
            self.keepers[number] -= 1
            if not self.keepers[number] and number in self.live and number != self.plan.final:
                self.allocator.free(self.live.pop(number))

    def _gradients(
        self, op: Op, gradients: dict[int, Block | None], weight_gradients: dict[int, Block | None]
    ) -> None:
        """Run the backward of one operation."""
        allocator, sizes = self.allocator, self.tape.sizes
        constants, detached = self.tape.constants, self.tape.detached
        if op.output not in gradients:
            gradients[op.output] = allocator.malloc(sizes[op.output])
        for number in op.inputs:
            if number in constants or number in detached:
                continue
            if number in gradients:
                allocator.borrow(sizes[number])  # accumulated in place into the gradient that is there
            else:
                gradients[number] = allocator.malloc(sizes[number])
            if op.data_workspace_bytes:
                allocator.borrow(op.data_workspace_bytes)
        for weight in op.weights:
            if weight in weight_gradients:
                allocator.borrow(self.tape.parameters[weight])
            else:
                weight_gradients[weight] = allocator.malloc(self.tape.parameters[weight])
        if op.weight_workspace_bytes:
            allocator.borrow(op.weight_workspace_bytes)
        allocator.free(gradients.pop(op.output))
