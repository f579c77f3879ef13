"""Readings of this node's GPUs: the monitor's window where it is fresh, else two samples of our own."""

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
        DeviceError: There is neither a monitor nor a driver that answers.
    """
    window = read_window(Path(config.paths.run), now_s=clock.now_s())
    if window is not None:
        return window
    from slurm_plugin.monitor.gpus.source import timely_telemetry

    return timely_telemetry(config.telemetry, clock).read()


def without_driver(facts: NodeFacts | None, *, now_s: float) -> tuple[GpuReading, ...]:
    """Return the GPUs that this node is known to have, as if nobody but the ledger's jobs held anything of them.

    Args:
        facts: What is known of this node; None if nothing is.
        now_s: Seconds since the epoch.
    """
    return tuple(
        GpuReading(
            uuid=card.uuid,
            index=card.index,
            name="",
            memory_total_bytes=card.usable_bytes,
            memory_used_bytes=0,
            mig=card.mig,
            time_s=now_s,
        )
        for card in (facts.cards if facts is not None else ())
    )
