"""Keras 3 on PyTorch: its optimizers are none of torch.optim, and its callbacks run in threads.

Modes of PyTorch hold in one thread, so another does not see the pretended GPU: callbacks run where they are called.
Each of its optimizers is shown to the hooks of torch.optim as one of that library with the same weights and states.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from gpumemnet.tracing.script.libraries.imported import After

_CALLBACKS = "keras.src.callbacks.callback_list"
_OPTIMIZERS = "keras.src.optimizers.base_optimizer"
_TRAINER = "keras.src.backend.torch.trainer"
Hook = Callable[[Any], Any]


def pretended(before: Hook, after: Hook, called: Callable[[Any, Any], None]) -> None:
    """Make a later import of Keras report its steps, permanently.

    Args:
        before: Called with an optimizer that begins a step.
        after: Called with it after the step.
        called: Called with a model and its inputs before each training step.
    """
    for module, begin in (
        (_CALLBACKS, _in_this_thread),
        (_OPTIMIZERS, lambda: _steps(before, after)),
        (_TRAINER, lambda: _models(called)),
    ):
        sys.meta_path.insert(0, After(module, begin))


class TorchStyleOptimizer(torch.optim.Optimizer):
    """An optimizer of Keras in the form of torch.optim's; it makes no steps."""

    def __init__(self, weights: list[Any]) -> None:
        super().__init__(weights, {})

    def show(self, kept: list[Any]) -> None:
        """Hold the states that the optimizer of Keras holds."""
        first = self.param_groups[0]["params"][0]
        self.state[first] = dict(enumerate(kept))


def _in_this_thread() -> None:
    sys.modules[_CALLBACKS].CallbackList._async_dispatch = lambda _, function, *args: function(*args)


def _steps(before: Hook, after: Hook) -> None:
    optimizer: Any = sys.modules[_OPTIMIZERS].BaseOptimizer
    apply = optimizer.apply
    shown: WeakKeyDictionary[Any, TorchStyleOptimizer] = WeakKeyDictionary()

    def applied(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        weights = list(trainable_variables or getattr(self, "_trainable_variables", ()))
        if self not in shown and weights:
            one = type(type(self).__name__, (TorchStyleOptimizer,), {})
            shown[self] = one([each.value for each in weights])
        if self not in shown:
            return apply(self, grads, trainable_variables)
        before(shown[self])
        try:
            return apply(self, grads, trainable_variables)
        finally:
            shown[self].show([each.value for each in self.variables])
            after(shown[self])

    optimizer.apply = applied


def _models(called: Callable[[Any, Any], None]) -> None:
    trainer: Any = sys.modules[_TRAINER].TorchTrainer
    step = trainer.train_step

    def train_step(self: Any, data: Any) -> Any:
        called(self, data[0] if isinstance(data, tuple) else data)
        return step(self, data)

    trainer.train_step = train_step
