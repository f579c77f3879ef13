"""What a profile sums up: layers by group, tensors kept for backward, parameters that no layer owns."""

from __future__ import annotations

from collections import Counter

from gpumemnet import kinds
from gpumemnet.summary import ModelSummary
from gpumemnet.tape import Tape


def count_groups(summary: ModelSummary) -> Counter[str]:
    """Count the layers that run by the group of their kind."""
    counts = Counter[str]()
    running = [layer.kind for layer in summary.layers if layer.runs and not layer.is_block]
    for kind, number in Counter(running).items():
        if kind != "parameter":
            counts[kinds.group_of(kind)] += number
    return counts


def saved(tape: Tape) -> Counter[str]:
    """Sum the bytes kept for backward by the group of the operation that keeps them; each counts once."""
    found = Counter[str]()
    seen: set[int] = set()
    for op in tape.ops:
        for number in op.saved:
            if number not in seen and number not in tape.constants:
                seen.add(number)
                found["mask" if number in op.extra else op.group] += tape.sizes[number]
    return found


def loose(summary: ModelSummary) -> int:
    """Count parameters that containers hold themselves, or that only the total tells of."""
    held = sum(layer.params or 0 for layer in summary.layers if layer.kind == "parameter")
    counted = sum(layer.params or 0 for layer in summary.layers)
    return held + max((summary.total_params or 0) - counted, 0)


def largest_pair(tape: Tape, group: str) -> int:
    """Return the most that one operation of a group reads and makes together, in bytes."""
    sizes = tape.sizes
    return max(
        (
            sizes[op.output] + sum(sizes[number] for number in op.inputs)
            for op in tape.ops
            if op.group == group
        ),
        default=0,
    )
