"""The traced training loop, the same as in a plain PyTorch script."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.names import Optimizer, Precision
from gpumemnet.records import frozen
from gpumemnet.tracing.trace.cuda.older import grad_scaler
from gpumemnet.tracing.trace.recording.recorder import Recorder
from gpumemnet.training import TrainingSetup

STEPS = 3
"""The first step creates the optimizer's states; the second has the full peak, and the third its fragmentation."""

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass
class Script:
    """Variables of a training script: a step's results live until the next step replaces them.

    Attributes:
        output: The model's output.
        loss: The loss.
    """

    output: Any = None
    loss: Tensor | None = None


Step = Callable[[nn.Module, dict[str, Any], Script], Tensor]
"""Runs the model on a batch, stores the output in the script, and returns the loss."""


@frozen
class TracedTraining:
    """A training to trace.

    Attributes:
        model: On the pretended device.
        batch: Inputs on the pretended device, by name; positional ones under their index.
        step: Function that computes the loss.
        optimizer: Function that makes the optimizer.
        setup: Supplies the precision.
    """

    model: nn.Module
    batch: dict[str, Any]
    step: Step
    optimizer: OptimizerFactory
    setup: TrainingSetup


def optimizer_of(setup: TrainingSetup, **how: Any) -> OptimizerFactory:
    """Return a factory of PyTorch's optimizer of that name with its defaults, or with `how` as well."""
    rate = 1e-4
    makers: dict[str, OptimizerFactory] = {
        Optimizer.SGD: lambda p: torch.optim.SGD(p, lr=rate, **how),
        Optimizer.SGD_MOMENTUM: lambda p: torch.optim.SGD(p, lr=rate, momentum=0.9, **how),
        Optimizer.ADAM: lambda p: torch.optim.Adam(p, lr=rate, **how),
        Optimizer.ADAMW: lambda p: torch.optim.AdamW(p, lr=rate, **how),
        Optimizer.RMSPROP: lambda p: torch.optim.RMSprop(p, lr=rate, **how),
        Optimizer.ADAFACTOR: lambda p: torch.optim.Adafactor(p, lr=rate, **how),
    }
    return makers[setup.optimizer]


def run(training: TracedTraining, recorder: Recorder) -> None:
    """Train for a few steps under an active recorder.

    The output and the loss of a step live until the next step replaces them, so they coexist with its activations, as
    in the loops of PyTorch's tutorials.

    Args:
        training: The training.
        recorder: Notified of each phase.
    """
    model, amp = training.model, training.setup.precision is Precision.AMP
    optimizer = training.optimizer(model.parameters())
    scaler = grad_scaler(enabled=amp)
    script = Script()
    for _ in range(STEPS):
        recorder.enter("forward")
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=amp):
            script.loss = training.step(model, training.batch, script)
        recorder.enter("backward")
        scaler.scale(script.loss).backward()
        recorder.mark((p.grad for p in model.parameters()), "gradients")
        recorder.enter("optimizer")
        scaler.step(optimizer)
        scaler.update()
        recorder.mark((v for state in optimizer.state.values() for v in _tensors(state)), "optimizer")
    recorder.finish()


def _tensors(state: Any) -> list[Tensor]:
    return [value for value in state.values() if isinstance(value, Tensor)]
