"""Everything PyTorch needs to train a configuration: a model, tensors and a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.learning.dataset.config import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model that can be built, with its inputs and target.

    Attributes:
        build: Makes the model on the current default device, with the current default dtype.
        inputs: The inputs, by position or by keyword.
        target: The target of the output; None if the model computes its own loss.
        loss: "cross_entropy", "bce" or "own".
        set_checkpointing: Switches gradient checkpointing on in a built model.
    """

    build: Callable[[], nn.Module]
    inputs: tuple[TensorSpec, ...] | Mapping[str, TensorSpec]
    target: TensorSpec | None
    loss: str
    set_checkpointing: Callable[[nn.Module], None]


def make_tensor(spec: TensorSpec, batch_size: int, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Return one batch of random values.

    Args:
        spec: The tensor without its batch dimension.
        batch_size: Samples.
        device: Its device.
        dtype: Type of floating point values.
    """
    shape = (batch_size, *spec.shape)
    if spec.kind == "int":
        return torch.randint(0, spec.high, shape, device=device)
    return torch.randn(shape, device=device, dtype=dtype)


def make_inputs(
    work: Workload, batch_size: int, device: torch.device | str, dtype: torch.dtype
) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return positional and keyword inputs of one batch.

    Args:
        work: The workload.
        batch_size: Samples.
        device: Their device.
        dtype: Type of floating point values.
    """
    if isinstance(work.inputs, Mapping):
        return (), {k: make_tensor(spec, batch_size, device, dtype) for k, spec in work.inputs.items()}
    return tuple(make_tensor(spec, batch_size, device, dtype) for spec in work.inputs), {}


def loss_of(work: Workload, output: Any, target: Tensor | None) -> Tensor:
    """Return the loss as an ordinary training script computes it.

    Args:
        work: The workload.
        output: Output of the model.
        target: Its target; None if the model computes its own loss.
    """
    if work.loss == "own":
        own: Tensor = output.loss
        return own
    assert target is not None
    if work.loss == "bce":
        return nn.functional.binary_cross_entropy_with_logits(output, target.to(output.dtype))
    if output.dim() == 3:
        output, target = output.flatten(0, 1), target.flatten()
    return nn.functional.cross_entropy(output, target)
