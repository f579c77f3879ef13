"""Readings of this node's GPUs: from the monitor's window if it is fresh, else from two new samples."""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.window import read_window
from slurm_plugin.node.facts import NodeFacts


def read_gpus(config: Config, clock: Clock) -> tuple[GpuReading, ...]:
    """Return a reading of every GPU of this node.

    Args:
        config: rad.toml.
        clock: Time.

    Raises:
        DeviceError: There is no monitor, and no driver answers.
    """
    window = read_window(Path(config.paths.run), now_s=clock.now_s())
    if window is not None:
        return window
    from slurm_plugin.monitor.gpus.source import timely_telemetry

    return timely_telemetry(config.telemetry, clock).read()


def without_driver(facts: NodeFacts | None, *, now_s: float) -> tuple[GpuReading, ...]:
    """Return this node's known GPUs as if only the ledger's jobs used them.

    Args:
        facts: The known facts of this node; None if there are none.
        now_s: Seconds since the epoch.
    """
    return tuple(
        GpuReading(
            uuid=gpu.uuid,
            index=gpu.index,
            name="",
            memory_total_bytes=gpu.usable_bytes,
            memory_used_bytes=0,
            mig=gpu.mig,
            time_s=now_s,
        )
        for gpu in (facts.gpus if facts is not None else ())
    )
