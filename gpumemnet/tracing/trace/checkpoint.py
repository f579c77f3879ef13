"""Switch on gradient checkpointing by the model's library, or around its repeated blocks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


def switch_on(model: nn.Module) -> str | None:
    """Recompute the activations of repeated blocks in backward.

    Returns:
        A sentence about the assumption; None if the model has a switch for it.
    """
    for name, args in (("gradient_checkpointing_enable", ()), ("set_grad_checkpointing", (True,))):
        switch = getattr(model, name, None)
        if callable(switch):
            switch(*args)
            return None
    blocks = [block for group in model.modules() for block in _repeated(group)]
    if not blocks:
        return "gradient checkpointing has no effect: the model has no repeated blocks"
    for block in blocks:
        _wrap(block)
    kinds = ", ".join(sorted({type(block).__name__ for block in blocks}))
    return f"gradient checkpointing was put around each of {len(blocks)} blocks ({kinds})"


def _repeated(group: nn.Module) -> list[nn.Module]:
    """Return the blocks of a list or sequence that holds at least two of one kind with layers inside."""
    if not isinstance(group, (nn.ModuleList, nn.Sequential)):
        return []
    kinds = Counter(type(child) for child in group)
    return [child for child in group if kinds[type(child)] > 1 and any(True for _ in child.children())]


def _wrap(block: nn.Module) -> None:
    forward = block.forward

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    block.forward = recomputed
