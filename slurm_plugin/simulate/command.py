"""`rad simulate`: read a trace, simulate it, print the results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config import toml
from slurm_plugin.core.config.load import PartitionConfig, load_config
from slurm_plugin.core.config.typed_table import build
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.simulate.engine import Engine
from slurm_plugin.simulate.metrics import metrics
from slurm_plugin.simulate.question import SimulationQuestion
from slurm_plugin.simulate.scenario import scenario
from slurm_plugin.simulate.traces.job import as_words
from slurm_plugin.slurm.versions import NEWEST, Version, traits

ROWS = {
    "crashes": "out of memory or stopped",
    "stopped": "stopped by the guard",
    "hurt": "ended within the booking",
    "recoveries": "rerun after that",
    "failed": "not rerun after that",
    "over_limit": "jobs over their time limit",
}
"""Rows of the text whose figure's name says too little (result.py)."""


def simulate(question: SimulationQuestion, clock: Clock, *, show_progress: bool = False) -> dict[str, Any]:
    """Simulate a trace and return its figures.

    Args:
        question: What is to be simulated.
        clock: Measures how long the simulation itself took.
        show_progress: Draw a progress bar on the error output.

    Raises:
        ConfigError: The trace cannot be read, or no job of it fits the cluster.
    """
    began_s = clock.monotonic_s()
    found = scenario(question)
    engine = Engine(found.cluster, found.jobs)
    if show_progress:
        import click

        with click.progressbar(length=len(found.jobs), file=sys.stderr, label="jobs ended") as bar:
            result = engine.run(bar.update)
    else:
        result = engine.run()
    return metrics(result) | {
        "left_out": dict(found.left_out),
        "unknown_workloads": found.unknown,
        "simulated_in_s": round(clock.monotonic_s() - began_s, 2),
    }


def settings_of(config: Path | None, partition: str | None, slurm: Version = NEWEST) -> PartitionConfig:
    """Return the settings to try: a partition of rad.toml, or without a file the defaults of `rad install`.

    Args:
        config: Path of rad.toml; None takes the defaults of `rad install`.
        partition: Its name; None takes the only one.
        slurm: Its version decides whether jobs of several GPUs share them, as `rad install` has it.

    Raises:
        ConfigError: The file cannot be read, or it is ambiguous which partition is meant.
    """
    if config is None:
        return PartitionConfig(share_multi_gpu=traits(slurm).spreads_shards)
    found = load_config(config).partitions
    name = partition or (next(iter(found)) if len(found) == 1 else None)
    if name not in found:
        names = ", ".join(found) or "none"
        raise ConfigError(f"{config}: say which partition is meant with --partition; it has {names}")
    return found[name]


def with_changes(settings: PartitionConfig, changes: Sequence[str]) -> PartitionConfig:
    """Return settings with other values.

    Args:
        settings: The settings of a partition.
        changes: KEY=VALUE each, as in rad.toml; a word needs no quotes.

    Raises:
        ConfigError: A key is unknown, or a value is of the wrong kind.
    """
    table: dict[str, Any] = {}
    for change in changes:
        key, _, value = change.partition("=")
        try:
            table[key] = toml.loads(f"value = {value}")["value"]
        except toml.TOMLDecodeError:
            table[key] = value
    return build(settings, table, origin="--set", where="", strict=True)


def as_text(figures: dict[str, Any]) -> str:
    """Return the figures as text, one per line."""
    words = {
        name: as_words(value) or "none" if isinstance(value, dict) else value
        for name, value in figures.items()
    }
    rows = ((ROWS.get(name, name.replace("_", " ")), value) for name, value in words.items())
    return "\n".join(f"{name:<26} {value}" for name, value in rows)
