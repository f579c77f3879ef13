"""Until when each tensor of a tape lives: who reads it last, who keeps it, what checkpointing makes again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gpumemnet.names import Group
from gpumemnet.summaries.graph.tape import Tape


@dataclass(slots=True, kw_only=True, eq=False)
class Repeat:
    """A block that gradient checkpointing runs again in backward.

    Attributes:
        ops: Indices of its operations, in order.
        last_use: Index of the operation inside that reads or makes each tensor last.
        keepers: How many operations inside keep each tensor for their backward.
        outside: Tensors that it reads and did not make; they are kept for running it again.
    """

    ops: list[int] = field(default_factory=list)
    last_use: dict[int, int] = field(default_factory=dict)
    keepers: dict[int, int] = field(default_factory=dict)
    outside: set[int] = field(default_factory=set)


class Lifetimes(NamedTuple):
    """Who reads and who keeps each tensor; the same for every step.

    Attributes:
        output: The model's output, which outlives the step; -1 if there is none.
        block_of: Number of the block that runs again, for each operation; 0 for those that run once.
        keepers: How many operations and blocks keep each tensor for backward.
        dying: Tensors that nobody reads after an operation and nobody keeps, by the operation's index.
        repeats: The blocks that run again, by number.
    """

    output: int
    block_of: list[int]
    keepers: dict[int, int]
    dying: dict[int, list[int]]
    repeats: dict[int, Repeat]


def lifetimes(tape: Tape, *, checkpointing: bool) -> Lifetimes:
    """Find who reads and who keeps each tensor.

    Args:
        tape: The forward pass.
        checkpointing: Whether its blocks run again in backward.
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
