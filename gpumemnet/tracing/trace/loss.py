"""Compute the differentiated scalar if the user's function does not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpumemnet.errors import TraceError
from gpumemnet.tracing.trace.step import Script, Step

TARGET = "target"
_KNOWN_LOSSES = (nn.modules.loss._Loss, nn.modules.loss._WeightedLoss)


def step_for(loss: Callable[..., Any] | None, warn: Callable[[str], None]) -> Step:
    """Return a step that runs the model on the batch and computes the loss.

    Args:
        loss: The user's loss(output, target), or None.
        warn: Receives each assumption.
    """

    def step(model: nn.Module, batch: dict[str, Any], script: Script) -> Tensor:
        positional = [value for name, value in batch.items() if name.isdigit()]
        named = {name: value for name, value in batch.items() if not name.isdigit() and name != TARGET}
        script.output = output = model(*positional, **named)
        target = batch.get(TARGET)
        if loss is not None:
            if target is None:
                target = _invented_target(loss, output)
            return scalar(loss(output) if target is None else loss(output, target))
        own = own_loss(output)
        if own is not None:
            return scalar(own)
        return scalar(default_loss(output, target, tokens=_takes_tokens(batch), warn=warn))

    return step


def users_step(step: Callable[..., Any]) -> Step:
    """Wrap the user's step(model, inputs); its local variables are freed when it returns."""
    return lambda model, batch, _: scalar(step(model, batch))


def own_loss(output: Any) -> Tensor | None:
    """Return the loss that the model computed, as in Hugging Face and torchvision models; or None."""
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(found, Tensor):
        return found
    if isinstance(output, Mapping):
        parts = [v for k, v in output.items() if "loss" in k and isinstance(v, Tensor)]
        return sum(parts[1:], parts[0]) if parts else None
    if isinstance(output, Tensor) and output.dim() == 0 and output.is_floating_point():
        return output
    return None


def default_loss(output: Any, target: Tensor | None, *, tokens: bool, warn: Callable[[str], None]) -> Tensor:
    """Return cross entropy for class scores, and the mean square for other outputs.

    Args:
        output: The model's output; its first floating point tensor counts.
        target: Classes or values, batch first; None to make one.
        tokens: Whether the model reads tokens, so that there is one score per token.
        warn: Receives a sentence on the assumption.
    """
    scores = _first_float(output)
    if scores is None:
        raise TraceError(
            "the model's output has no floating point tensor; return (model, loss) from the function"
        )
    if tokens and scores.dim() == 3:
        scores = scores.flatten(0, 1)
    # Class indices have the scores' shape without the class dimension.
    classes_wanted = target is None or not target.is_floating_point()
    if classes_wanted and scores.dim() == 2:
        warn("no loss was given: cross entropy of the output is assumed")
        labels = _labels(scores.shape[:1], scores.device) if target is None else target.flatten()
        return F.cross_entropy(scores, labels)
    if classes_wanted and target is not None:
        return F.cross_entropy(scores, target)
    warn("no loss was given: the mean square of the output is assumed")
    return F.mse_loss(scores, torch.empty_like(scores) if target is None else target)


def _labels(shape: Any, device: torch.device) -> Tensor:
    return torch.empty(tuple(shape), dtype=torch.int64, device=device)


def _first_float(output: Any) -> Tensor | None:
    if isinstance(output, Tensor):
        return output if output.is_floating_point() else None
    for name in ("logits", "last_hidden_state", "out"):
        found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    values = (
        output.values()
        if isinstance(output, Mapping)
        else output
        if isinstance(output, (list, tuple))
        else ()
    )
    return next((found for value in values if (found := _first_float(value)) is not None), None)


def _takes_tokens(batch: dict[str, Any]) -> bool:
    return any(isinstance(v, Tensor) and not v.is_floating_point() for k, v in batch.items() if k != TARGET)


def _invented_target(loss: Any, output: Any) -> Tensor | None:
    """Make a target for a loss of torch.nn; None for a loss that takes the output alone."""
    if isinstance(loss, _KNOWN_LOSSES) and isinstance(output, Tensor):
        if isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss)):
            return _labels((output.shape[0], *output.shape[2:]), output.device)
        return torch.empty_like(output, requires_grad=False)
    try:
        inspect.signature(loss).bind(output)
    except TypeError:
        raise TraceError("the loss needs a target; give its shape, as in --input target=128:int64") from None
    except ValueError:
        pass
    return None


def scalar(value: Any) -> Tensor:
    """Return the loss, which must be a scalar that depends on the parameters."""
    if isinstance(value, Tensor) and value.numel() == 1 and value.requires_grad:
        return value
    raise TraceError("the loss is not a scalar that depends on the parameters")
