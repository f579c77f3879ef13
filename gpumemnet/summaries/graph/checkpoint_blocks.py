"""Find the repeated blocks of a torchsummary text, which checkpointing reruns; it shows only containers' ends."""

from __future__ import annotations

import re
from collections import defaultdict

from gpumemnet.summaries.texts.records import Layer

_BLOCK = re.compile(r"(block|layer|bottleneck|residual|inception|unit)\w{0,3}$")


def repeated(layers: tuple[Layer, ...]) -> dict[int, int]:
    """Find the blocks.

    Args:
        layers: Rows in running order; a container's row comes after its contents.

    Returns:
        Block number, from 1 on, by row; rows outside of blocks are omitted.
    """
    ends: dict[str, list[int]] = defaultdict(list)
    for index, layer in enumerate(layers):
        if layer.is_block and _BLOCK.search(layer.kind):
            ends[layer.kind].append(index)
    if not ends:
        return {}
    found = max(ends.values(), key=lambda indices: (len(indices), indices[-1]))
    if len(found) < 2:
        return {}
    numbers: dict[int, int] = {}
    start = max(found[0] - (found[1] - found[0]) + 1, 0)
    for number, end in enumerate(found, start=1):
        for index in range(start, end + 1):
            numbers[index] = number
        start = end + 1
    return numbers
