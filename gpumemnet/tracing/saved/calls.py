"""`gpumemnet.save` and `gpumemnet.summary`, for use in training code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from gpumemnet.tracing.saved import table
from gpumemnet.tracing.saved.make import Inputs, OptimizerLike, input_specs, saved_profile, unfilled_copy
from gpumemnet.tracing.saved.record import write


def save(
    model: nn.Module,
    inputs: Inputs,
    path: str | Path = "m.rad",
    *,
    loss: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: OptimizerLike = "adam",
    precision: str = "fp32",
    gradient_checkpointing: bool = False,
) -> None:
    """Trace a training step of a model and write its profile to a file for `#RAD model=m.rad`. No GPU is needed.

    Args:
        model: Built as for training, on any device. It is not changed.
        inputs: Inputs of its forward, batch first: a tensor, a shape, a list of either, or a dictionary by name.
        path: The file.
        loss: loss(output, target) -> scalar; None for the output's loss, or cross entropy or the mean square.
        target: A tensor or a shape for `loss`; None invents one for losses of torch.nn.
        optimizer: A name as in `#RAD optimizer=`, an optimizer (its class and settings are used), or a function of
            parameters that returns one.
        precision: A value of `#RAD precision=`: "fp32", "tf32", "amp" or "bf16".
        gradient_checkpointing: Whether blocks are recomputed in backward.

    Raises:
        gpumemnet.errors.TraceError: The model cannot be copied, or does not run on these inputs.
        gpumemnet.errors.SetupError: Optimizer or precision is unknown.
    """
    saved = saved_profile(
        model,
        inputs,
        loss=loss,
        target=target,
        optimizer=optimizer,
        precision=precision,
        gradient_checkpointing=gradient_checkpointing,
    )
    write(saved, path)


def summary(
    model: nn.Module, inputs: Inputs, path: str | Path = "m.rad", *, verbose: bool = True, **how: Any
) -> str:
    """Print a model's layers as torchinfo does at full depth, and save its profile next to it.

    Args:
        model: As for `save`.
        inputs: As for `save`.
        path: As for `save`.
        verbose: Whether to print the table.
        **how: Further arguments of `save`.

    Returns:
        The table, which `#RAD model=` also reads.

    Raises:
        gpumemnet.errors.GpuMemNetError: As for `save`.
    """
    text = table.of_model(unfilled_copy(model), input_specs(inputs))
    save(model, inputs, path, **how)
    if verbose:
        print(text)
        print(f"wrote {path}: add #RAD model={path} to the job script")
    return text
