"""Processes that no allocation covers, on a GPU that one job holds as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.units import MIB
from slurm_plugin.guard.violation import Violation
from slurm_plugin.monitor.attribution import Traced

UNMANAGED_BYTES = 64 * MIB
"""An unmanaged process with less is not reported: tools that query a GPU use some memory."""


def unmanaged_on(
    reading: GpuReading, ledger: Ledger, unmanaged: Sequence[tuple[GpuProcess, Traced]]
) -> Iterator[Violation]:
    """Find processes without an allocation on a GPU that one job holds as a whole.

    Args:
        reading: The GPU.
        ledger: The allocations.
        unmanaged: Its processes without an allocation, and their owners.
    """
    if not any(allocation.kind == "whole" for allocation in ledger.on(reading.uuid)):
        return
    for row, one in unmanaged:
        if (row.memory_bytes or 0) >= UNMANAGED_BYTES:
            yield Violation(
                kind="unmanaged",
                gpu=reading.uuid,
                job_id=one.job_id,
                user_id=one.user_id,
                used_bytes=row.memory_bytes or 0,
                limit_bytes=0,
                free_bytes=reading.free_bytes,
                processes=(one.process,),
            )
