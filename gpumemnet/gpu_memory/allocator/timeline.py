"""Memory over one training step, as a record."""

from __future__ import annotations

from dataclasses import dataclass

PHASES = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Memory over one step.

    Attributes:
        level_bytes: Bytes in tensors after each change, in order, including workspaces within an operation.
        starts: Index into `level_bytes` at which each of PHASES begins.
        kept_bytes: The part that stays between steps: weights, buffers, optimizer states.
    """

    level_bytes: tuple[int, ...]
    starts: tuple[int, int, int]
    kept_bytes: int
