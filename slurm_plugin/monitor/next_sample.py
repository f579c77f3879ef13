"""Wait for rad-monitor's next sample, where its last one may be too old for what a hook must know."""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.window import read_window

NEXT_SAMPLE_S = 1.4
"""The monitor samples once a second."""

_POLL_S = 0.05


def await_sample(run: Path, clock: Clock) -> tuple[GpuReading, ...] | None:
    """Return once the monitor took a sample that began after now; at once if there is no monitor.

    Args:
        run: Folder of the node's state (`paths.run`).
        clock: Time.

    Returns:
        That sample, as `read_window` has it; None if there is none.
    """
    start_s, deadline = clock.now_s(), Deadline(clock, NEXT_SAMPLE_S)
    while not deadline.passed():
        readings = read_window(run, now_s=clock.now_s())
        if readings is None:
            return None
        if all(reading.time_s > start_s for reading in readings):
            return readings
        clock.sleep(_POLL_S)
    return None
