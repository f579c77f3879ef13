"""Simulated cards: what each is, and what holds its memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One simulated GPU.

    Attributes:
        uuid: "GPU-..." as CUDA_VISIBLE_DEVICES takes it.
        index: The number that Slurm uses.
        name: Product name.
        memory_total_bytes: All memory of the card.
        memory_reserved_bytes: What the driver keeps.
    """

    uuid: str
    index: int
    name: str
    memory_total_bytes: int
    memory_reserved_bytes: int = 0

    @property
    def usable_bytes(self) -> int:
        """Return what processes can have in all."""
        return self.memory_total_bytes - self.memory_reserved_bytes


def cards_of(node: str, memory_bytes: Sequence[int], *, reserved_bytes: int = 0) -> tuple[Card, ...]:
    """Return a node's cards, whose UUIDs follow from its name and stay the same.

    Args:
        node: The node's name.
        memory_bytes: All memory of each card.
        reserved_bytes: What the driver keeps of each.
    """
    from uuid import NAMESPACE_DNS, uuid5  # hooks import this module and make no cards

    return tuple(
        Card(
            uuid=f"GPU-{uuid5(NAMESPACE_DNS, f'{index}.{node}')}",
            index=index,
            name="Simulated GPU",
            memory_total_bytes=total_bytes,
            memory_reserved_bytes=reserved_bytes,
        )
        for index, total_bytes in enumerate(memory_bytes)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one process holds on one card.

    Attributes:
        pid: The process.
        started_ticks: Its start time in clock ticks since boot (proc(5), field 22), against reuse of the pid.
        uuid: The card.
        memory_bytes: Its memory, context included.
        smact: Share of SMs that it keeps busy, 0 to 1.
    """

    pid: int
    started_ticks: int
    uuid: str
    memory_bytes: int
    smact: float = 0.0


class CardFullError(Exception):
    """An allocation does not fit the card or the process's cap.

    Attributes:
        total_bytes: What the process takes for the whole card: its cap where one is set, as CUDA shows it under MPS.
        free_bytes: What it could still have had.
    """

    def __init__(self, *, total_bytes: int, free_bytes: int) -> None:
        super().__init__(f"{free_bytes} of {total_bytes} bytes free")
        self.total_bytes, self.free_bytes = total_bytes, free_bytes


def parsed(path: Path) -> Holding | None:
    """Return a process file's content; None if the process took it away meanwhile or wrote nonsense."""
    try:
        row: Any = json.loads(path.read_text())
        return Holding(**row)
    except (OSError, ValueError, TypeError):
        return None
