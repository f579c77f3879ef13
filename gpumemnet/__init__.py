"""GPU memory of a training job, estimated before it runs.

`summary` and `save` are for training code, where PyTorch is installed; importing this package imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpumemnet.saved.make import Inputs, Model, OptimizerLike


def save(
    model: Model,
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
        inputs: What its forward takes, batch first: a tensor, a shape, a list of either, or a dictionary by name.
        path: The file.
        loss: loss(output, target) -> scalar; None takes the output's own loss, or cross entropy or the mean square.
        target: A tensor or a shape for `loss`; None invents one for losses of torch.nn.
        optimizer: A name as in `#RAD optimizer=`, an optimizer whose class and settings are taken, or what makes one of
            parameters.
        precision: As in `#RAD precision=`: "fp32", "tf32", "amp" or "bf16".
        gradient_checkpointing: Whether blocks are recomputed in backward.

    Raises:
        gpumemnet.errors.TraceError: The model cannot be copied, or does not run on these inputs.
        gpumemnet.errors.SetupError: Optimizer or precision is unknown.
    """
    from gpumemnet.saved import make, record

    saved = make.saved_profile(
        model,
        inputs,
        loss=loss,
        target=target,
        optimizer=optimizer,
        precision=precision,
        gradient_checkpointing=gradient_checkpointing,
    )
    record.write(saved, path)


def summary(
    model: Model, inputs: Inputs, path: str | Path = "m.rad", *, verbose: bool = True, **how: Any
) -> str:
    """Print a model's layers as torchinfo does at full depth, and save its profile beside it.

    Args:
        model: As for `save`.
        inputs: As for `save`.
        path: As for `save`.
        verbose: Whether to print the table.
        **how: Further arguments of `save`.

    Returns:
        The table, which `#RAD model=` reads as well.

    Raises:
        gpumemnet.errors.GpuMemNetError: As for `save`.
    """
    from gpumemnet.saved import make, table

    text = table.of_model(make.unfilled_copy(model), make.input_specs(inputs))
    save(model, inputs, path, **how)
    if verbose:
        print(text)
        print(f"wrote {path}: add #RAD model={path} to the job script")
    return text
