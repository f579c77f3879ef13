"""Lifetime of each tensor of a tape: its last reader, its keepers, and recomputation by checkpointing."""

from __future__ import annotations

from typing import NamedTuple

from gpumemnet.names import Group
from gpumemnet.summaries.graph.tape import Tape


class Repeat:
    """A block that gradient checkpointing recomputes in backward.

    Attributes:
        ops: Indices of its operations, in order.
        last_use: For each tensor, index of the last operation inside that reads or makes it.
        keepers: For each tensor, number of operations inside that keep it for their backward.
        outside: Tensors that it reads and did not make; they are kept for recomputation.
    """

    def __init__(self) -> None:
        self.ops: list[int] = []
        self.last_use: dict[int, int] = {}
        self.keepers: dict[int, int] = {}
        self.outside: set[int] = set()


class Lifetimes(NamedTuple):
    """Readers and keepers of each tensor; the same for every step.

    Attributes:
        output: The model's output, which outlives the step; -1 if there is none.
        block_of: For each operation, number of its recomputed block; 0 if it runs once.
        keepers: For each tensor, number of operations and blocks that keep it for backward.
        dying: Tensors without later readers or keepers, by the index of their last operation.
        repeats: The recomputed blocks, by number.
    """

    output: int
    block_of: list[int]
    keepers: dict[int, int]
    dying: dict[int, list[int]]
    repeats: dict[int, Repeat]


def lifetimes(tape: Tape, *, checkpointing: bool) -> Lifetimes:
    """Find the readers and keepers of each tensor.

    Args:
        tape: The forward pass.
        checkpointing: Whether its blocks are recomputed in backward.
    """
    ops = tape.ops
    output = next((op.output for op in reversed(ops) if op.group is not Group.LOSS), -1)
    last_use: dict[int, int] = {}
    keepers: dict[int, int] = {}
    repeats: dict[int, Repeat] = {}
    made_in: dict[int, int] = {}
    for index, op in enumerate(ops):
        for number in op.inputs:
            last_use[number] = index
        last_use[op.output] = index
        block = op.block if checkpointing else 0
        made_in[op.output] = block
        kept = keepers
        if block:
            repeat = repeats.setdefault(block, Repeat())
            repeat.ops.append(index)
            repeat.last_use.update(dict.fromkeys((*op.inputs, op.output, *op.extra), index))
            repeat.outside.update(number for number in op.inputs if made_in.get(number) != block)
            kept = repeat.keepers
        for number in op.saved:
            kept[number] = kept.get(number, 0) + 1
    for repeat in repeats.values():
        for number in repeat.outside:
            keepers[number] = keepers.get(number, 0) + 1
    dying: dict[int, list[int]] = {}
    for number, index in last_use.items():
        if number not in keepers and number != output:
            dying.setdefault(index, []).append(number)
    return Lifetimes(
        output=output,
        block_of=[op.block if checkpointing else 0 for op in ops],
        keepers=keepers,
        dying=dying,
        repeats=repeats,
    )
