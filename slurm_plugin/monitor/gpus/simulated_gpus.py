"""Simulated GPUs, and the usage of their memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One simulated GPU.

    Attributes:
        uuid: "GPU-..." as CUDA_VISIBLE_DEVICES takes it.
        index: The number that Slurm uses.
        name: Product name.
        memory_total_bytes: All memory of the GPU.
        memory_reserved_bytes: Memory reserved by the driver.
    """

    uuid: str
    index: int
    name: str
    memory_total_bytes: int
    memory_reserved_bytes: int = 0

    @property
    def usable_bytes(self) -> int:
        """Return the memory that all processes together can use."""
        return self.memory_total_bytes - self.memory_reserved_bytes


def make_gpus(node: str, memory_bytes: Sequence[int], *, reserved_bytes: int = 0) -> tuple[GpuSpec, ...]:
    """Return a node's GPUs, with UUIDs that depend only on its name and stay the same.

    Args:
        node: The node's name.
        memory_bytes: All memory of each GPU.
        reserved_bytes: Memory that the driver reserves on each.
    """
    from uuid import NAMESPACE_DNS, uuid5  # hooks import this module and make no GPUs

    return tuple(
        GpuSpec(
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
    """Usage of one process on one GPU.

    Attributes:
        pid: The process.
        started_ticks: Its start time in clock ticks since boot (proc(5), field 22), against reuse of the pid.
        uuid: The GPU.
        memory_bytes: Its memory, context included.
        smact: Share of SMs that it keeps busy, 0 to 1.
    """

    pid: int
    started_ticks: int
    uuid: str
    memory_bytes: int
    smact: float = 0.0


class GpuFullError(Exception):
    """An allocation does not fit the GPU or the process's limit.

    Attributes:
        total_bytes: Size of the GPU as the process sees it: its limit where one is set, as CUDA shows it under MPS.
        free_bytes: Memory that it could still have had.
    """

    def __init__(self, *, total_bytes: int, free_bytes: int) -> None:
        super().__init__(f"{free_bytes} of {total_bytes} bytes free")
        self.total_bytes, self.free_bytes = total_bytes, free_bytes


def parsed(path: Path) -> Holding | None:
    """Return a process file's content; None if the process removed it meanwhile or wrote invalid content."""
    try:
        row: Any = json.loads(path.read_text())
        return Holding(**row)
    except (OSError, ValueError, TypeError):
        return None
