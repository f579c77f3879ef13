"""What each optimizer holds and borrows, from the code of torch.optim (2.4 to 2.13, its default implementations)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpumemnet.training import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerMemory:
    """Memory of one optimizer.

    Attributes:
        states: Tensors of each parameter's size kept for good (momentum, second moment).
        listed: Tensors of the size of all parameters that one step holds at once (foreach works on whole lists).
        single: Tensors of the size of the largest parameter that one step holds (one parameter after the other).
        factored: The second moment of a matrix is kept as one row and one column.
    """

    states: int
    listed: int = 0
    single: int = 0
    factored: bool = False

    def state_bytes(self, parameters: Sequence[int]) -> list[int]:
        """Return the sizes of the states; a factored second moment is too small to count."""
        return [n_bytes for n_bytes in parameters for _ in range(self.states)]

    def borrowed_bytes(self, parameters: Sequence[int]) -> list[int]:
        """Return the sizes of what a step borrows at its peak."""
        largest = max(parameters, default=0)
        return [n_bytes for n_bytes in parameters for _ in range(self.listed)] + [largest] * self.single


OPTIMIZER_MEMORY: dict[Optimizer, OptimizerMemory] = {
    "sgd": OptimizerMemory(states=0),
    "sgd-momentum": OptimizerMemory(states=1),
    # _foreach_sqrt(exp_avg_sqs) is one list of the parameters' size.
    "adam": OptimizerMemory(states=2, listed=1),
    "adamw": OptimizerMemory(states=2, listed=1),
    # _foreach_sqrt(square_avgs) likewise.
    "rmsprop": OptimizerMemory(states=1, listed=1),
    # Adafactor is not foreach unless asked: var_estimate and update of one parameter at a time.
    "adafactor": OptimizerMemory(states=0, single=2, factored=True),
}
