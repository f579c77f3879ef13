"""States and temporaries of each optimizer, from torch.optim (2.4 to 2.13, its default implementations)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from gpumemnet.gpu_memory.allocator.blocks import MIN_BLOCK_BYTES
from gpumemnet.names import Optimizer

SizeRun = tuple[int, int]
"""A size in bytes, and the number of neighbours in a list that have it."""


def runs(sizes: Iterable[int]) -> list[SizeRun]:
    """Count equal neighbours among sizes in bytes, rounded up as the allocator rounds them."""
    rounded = [-(-size // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES for size in sizes]
    return [(size, len(list(group))) for size, group in groupby(rounded)]


class OptimizerMemory(NamedTuple):
    """Memory of one optimizer.

    Attributes:
        states: Permanent tensors of each parameter's size (momentum, second moment).
        listed: Number of tensors of the size of all parameters during a step (foreach works on whole lists).
        single: Number of tensors of the size of the largest parameter during a step (one parameter at a time).
    """

    states: int
    listed: int = 0
    single: int = 0

    def state_bytes(self, parameters: Sequence[int]) -> int:
        """Return the bytes of the states; a factored second moment is too small to count."""
        return sum(parameters) * self.states

    def step_bytes(self, parameters: Sequence[int]) -> int:
        """Return the peak of a step's temporaries, in bytes."""
        return sum(parameters) * self.listed + max(parameters, default=0) * self.single

    def state_runs(self, parameters: Sequence[SizeRun]) -> list[SizeRun]:
        """Return the states in allocation order, parameter by parameter."""
        return [(size, times * self.states) for size, times in parameters]

    def step_runs(self, parameters: Sequence[SizeRun]) -> list[SizeRun]:
        """Return the temporaries of a step in allocation order."""
        largest = max((size for size, _ in parameters), default=0)
        return [*((size, times * self.listed) for size, times in parameters), (largest, self.single)]


OPTIMIZER_MEMORY: dict[Optimizer, OptimizerMemory] = {
    Optimizer.SGD: OptimizerMemory(states=0),
    Optimizer.SGD_MOMENTUM: OptimizerMemory(states=1),
    # _foreach_sqrt(exp_avg_sqs) is one list of the parameters' size.
    Optimizer.ADAM: OptimizerMemory(states=2, listed=1),
    Optimizer.ADAMW: OptimizerMemory(states=2, listed=1),
    # _foreach_sqrt(square_avgs) likewise.
    Optimizer.RMSPROP: OptimizerMemory(states=1, listed=1),
    # Adafactor is not foreach by default: var_estimate and update of one parameter at a time.
    # Its second moment: a row and a column of each matrix.
    Optimizer.ADAFACTOR: OptimizerMemory(states=0, single=2),
}
