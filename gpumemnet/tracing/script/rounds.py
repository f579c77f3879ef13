"""Decide when a script has made enough steps: two with each of its optimizers.

The optimizers of a GAN or of an agent alternate, and not one to one: a critic makes five steps per step of its
generator. A trace that ends before an optimizer's second step misses the memory of that step. Where each weight has a
separate optimizer that steps once the weight's gradient is ready, hundreds make one step in each backward pass.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

import torch

from gpumemnet.tracing.trace.cuda.tensors import local, on_cuda

STEPS = 2
"""Complete steps of each optimizer. What follows is recorded until the next step would begin: its memory belongs to the
peak."""
MORE = 4
"""Further steps if the script changes the size of its inputs between steps."""
PATIENCE = 16
"""Steps of one optimizer after which the trace no longer waits for another that made none or only one."""
SELDOM = (
    "an optimizer made fewer than two steps among the first: what it needs in addition is not in the estimate"
)


class Rounds:
    """Counts the steps of a script's optimizers.

    Attributes:
        optimizers: Optimizers that made a step. A new one for the same parameters replaces the last.
        wanted: Steps that each must make.
    """

    def __init__(self) -> None:
        self.wanted = STEPS
        self.optimizers: dict[Any, torch.optim.Optimizer] = {}
        self._made: dict[Any, int] = {}
        self._expected: WeakSet[torch.optim.Optimizer] = WeakSet()

    def begin(self, optimizer: torch.optim.Optimizer) -> None:
        """Record that an optimizer begins a step."""
        key = _key(optimizer)
        if not self._made:
            self._expected.update(alive())
        self.optimizers[key] = optimizer
        self._made.setdefault(key, 0)

    def end(self, optimizer: torch.optim.Optimizer) -> None:
        """Record that its step is complete.

        Args:
            optimizer: As for `begin`.
        """
        key = _key(optimizer)
        self._made[key] = self._made.get(key, 0) + 1

    @property
    def made(self) -> int:
        """Steps of all optimizers together."""
        return sum(self._made.values())

    @property
    def whole(self) -> int:
        """Steps of each optimizer in the mean, rounded down."""
        return self.made // max(len(self._made), 1)

    @property
    def waiting(self) -> bool:
        """Whether an optimizer has made fewer steps than needed.

        An optimizer created after the first step does not count: it belongs to another training, after this one.
        """
        return any(made < self.wanted for made in self._made.values()) or self._unmade(self._expected)

    @property
    def seldom(self) -> bool:
        """Whether an optimizer's memory may be missing: it made fewer than two steps, whenever it was created."""
        return any(made < STEPS for made in self._made.values()) or self._unmade(alive())

    @property
    def enough(self) -> bool:
        """Whether the next step need not be recorded."""
        return max(self._made.values(), default=0) >= PATIENCE or (bool(self._made) and not self.waiting)

    def _unmade(self, optimizers: Iterable[torch.optim.Optimizer]) -> bool:
        """Return whether one that made no step holds weights on the GPU that no other holds."""
        optimized = {p for optimizer in self.optimizers.values() for p in _parameters(optimizer)}
        rest = (each for each in optimizers if _key(each) not in self._made)
        return any(
            on_cuda(local(p)) and id(p) not in optimized
            for optimizer in rest
            for p in _parameters(optimizer).values()
        )


def alive() -> list[torch.optim.Optimizer]:
    """Return all live optimizers."""
    return [found for found in gc.get_objects() if issubclass(type(found), torch.optim.Optimizer)]


def _parameters(optimizer: torch.optim.Optimizer) -> dict[int, Any]:
    groups = getattr(optimizer, "param_groups", ())  # one under construction has none yet
    return {id(p): p for group in groups for p in group["params"]}


def _key(optimizer: torch.optim.Optimizer) -> Any:
    return type(optimizer), frozenset(_parameters(optimizer))
