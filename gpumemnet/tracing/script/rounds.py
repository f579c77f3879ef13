"""When a script has made the steps that are wanted: two with each of its optimizers.

Those of a GAN or of an agent take turns, and not one after the other: a critic makes five steps for one of its
generator. What the second one holds is in no trace that ends before its step. Where each weight has an optimizer of
its own, which steps as soon as the weight's gradient is there, hundreds make one step in each backward pass.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

import torch

from gpumemnet.tracing.trace.tensors import local, on_cuda

STEPS = 2
"""Steps of each optimizer that are made whole; what follows is watched until the next would begin: its memory is the
peak's."""
PATIENCE = 16
"""Steps of one optimizer after which another that made none or only one is waited for no longer."""
SELDOM = (
    "an optimizer made fewer than two steps among the first: what it takes besides is not in the estimate"
)


class Rounds:
    """Counts the steps of a script's optimizers.

    Attributes:
        optimizers: Those that made a step. One that was made anew for the same parameters takes the place of the last.
        wanted: Steps that each is to make.
    """

    def __init__(self) -> None:
        self.wanted = STEPS
        self.optimizers: dict[Any, torch.optim.Optimizer] = {}
        self._made: dict[Any, int] = {}
        self._expected: WeakSet[torch.optim.Optimizer] = WeakSet()

    def begin(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer begins a step.

        Args:
            optimizer: Of the script.
        """
        key = _key(optimizer)
        if not self._made:
            self._expected.update(alive())
        self.optimizers[key] = optimizer
        self._made.setdefault(key, 0)

    def end(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that its step is made.

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
        """Whether an optimizer has made fewer steps than are wanted.

        One that was made after the first step is not waited for: it is of another training, once this one is over.
        """
        return any(made < self.wanted for made in self._made.values()) or self._unmade(self._expected)

    @property
    def seldom(self) -> bool:
        """Whether what an optimizer takes may be unseen: it made fewer than two steps, whenever it was made itself."""
        return any(made < STEPS for made in self._made.values()) or self._unmade(alive())

    @property
    def enough(self) -> bool:
        """Whether the next step need not be watched."""
        return max(self._made.values(), default=0) >= PATIENCE or (bool(self._made) and not self.waiting)

    def _unmade(self, optimizers: Iterable[torch.optim.Optimizer]) -> bool:
        """Tell whether one that made no step holds weights on the GPU that no other holds."""
        held = {p for optimizer in self.optimizers.values() for p in _parameters(optimizer)}
        rest = (each for each in optimizers if _key(each) not in self._made)
        return any(
            on_cuda(local(p)) and id(p) not in held
            for optimizer in rest
            for p in _parameters(optimizer).values()
        )


def alive() -> list[torch.optim.Optimizer]:
    """Return the optimizers that are alive."""
    return [found for found in gc.get_objects() if issubclass(type(found), torch.optim.Optimizer)]


def _parameters(optimizer: torch.optim.Optimizer) -> dict[int, Any]:
    groups = getattr(optimizer, "param_groups", ())  # one that is being made has none yet
    return {id(p): p for group in groups for p in group["params"]}


def _key(optimizer: torch.optim.Optimizer) -> Any:
    return type(optimizer), frozenset(_parameters(optimizer))
