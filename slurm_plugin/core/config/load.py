"""rad.toml: one file for login nodes, the controller and GPU nodes; every key is checked, none is ignored.

Precedence, lowest first: the defaults in settings.py, `[partition_defaults]`, `[partition.NAME]`. The shipped template
gres_conf/rad.toml explains every key to admins; settings.py is its specification.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gpumemnet.records import replace
from slurm_plugin.core.config import DEFAULT, toml
from slurm_plugin.core.config.compute import overcommit_for
from slurm_plugin.core.config.gpu_types import GpuType
from slurm_plugin.core.config.mig_profiles import parse_profiles
from slurm_plugin.core.config.partition import PartitionConfig
from slurm_plugin.core.config.settings import Config, Features, Paths, TelemetryConfig
from slurm_plugin.core.config.typed_table import build
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.records.submission import LEAST_CONFIDENCE, MOST_CONFIDENCE

__all__ = [
    "DEFAULT_PATH",
    "Config",
    "Features",
    "GpuType",
    "PartitionConfig",
    "Paths",
    "TelemetryConfig",
    "load_config",
    "parse_config",
    "parse_text",
]

DEFAULT_PATH = Path(DEFAULT)
_MAX_SLOWDOWN = re.compile(r"^[^#\n]*?\b(max_slowdown)\s*=\s*(\d+(?:\.\d+)?)", re.MULTILINE)


def load_config(path: Path) -> Config:
    """Read rad.toml.

    Raises:
        ConfigError: The file is missing, not TOML, or a key or value is wrong; the text names the key and the fix.
    """
    try:
        return parse_text(path.read_text(encoding="utf-8"), origin=str(path))
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}; run: rad install") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: {exc}") from exc


def parse_text(text: str, *, origin: str, strict: bool = True) -> Config:
    """Return the configuration that a text describes.

    Args:
        text: The text of a rad.toml.
        origin: File name for messages.
        strict: Whether an unknown key is an error.

    Raises:
        ConfigError: It is not TOML, or a key or value is wrong.
    """
    try:
        tree = toml.loads(text)
    except (toml.TOMLDecodeError, RecursionError) as exc:
        raise ConfigError(f"{origin}: {exc}") from exc
    if strict and (old := _MAX_SLOWDOWN.search(text)):
        line, slowdown = text.count("\n", 0, old.start(1)) + 1, float(old[2])
        fix = f"write compute_overcommit = {overcommit_for(slowdown):.2f}" if slowdown else "remove the line"
        raise ConfigError(
            f"{origin}, line {line}: max_slowdown is now part of compute_overcommit; {fix} instead"
        )
    return parse_config(tree, origin=origin, strict=strict)


def parse_config(tree: dict[str, Any], *, origin: str, strict: bool = True) -> Config:
    """Build the configuration from parsed TOML.

    Args:
        tree: The file as read.
        origin: File name for messages.
        strict: Whether an unknown key is an error; a file of another version may have keys that this one lacks.

    Raises:
        ConfigError: A key is unknown (the nearest valid one is named) or a value is of the wrong kind.
    """
    rest = dict(tree)
    tables = rest.pop("partition", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(f"{origin}: partition must be tables, as in [partition.NAME]")
    config = build(Config(), rest, origin=origin, where="", strict=strict)
    partitions = {
        name: build(
            config.partition_defaults, table, origin=origin, where=f"partition.{name}.", strict=strict
        )
        for name, table in tables.items()
    }
    defaults = {"partition_defaults": config.partition_defaults}
    for name, partition in (
        defaults | {f"partition.{name}": one for name, one in partitions.items()}
    ).items():
        try:
            _ = partition.idle_after_s
        except ValueError as exc:
            raise ConfigError(f"{origin}: {name}.idle_after: {exc}") from exc
    for name, partition in partitions.items():
        if partition.shard_mib < 1:
            raise ConfigError(f"{origin}: partition.{name}.shard_mib is 0; one shard is at least 1 MiB")
        if partition.collocate and partition.shards < 1:
            raise ConfigError(
                f"{origin}: partition.{name} collocates but has no GPU size; "
                f"set gpu_memory_mib (nvidia-smi shows it) or shards_per_gpu (as in gres.conf)"
            )
        _check_types(name, partition, origin)
        if (
            not isinstance(partition.confidence, str)
            and not LEAST_CONFIDENCE <= partition.confidence <= MOST_CONFIDENCE
        ):
            raise ConfigError(
                f"{origin}: partition.{name}.confidence is {partition.confidence:g}; "
                f'it must be from {LEAST_CONFIDENCE} to {MOST_CONFIDENCE}, or "bound"'
            )
        if not 0.0 <= partition.compute_overcommit < float("inf"):
            raise ConfigError(
                f"{origin}: partition.{name}.compute_overcommit is {partition.compute_overcommit:g}; "
                f"it must be 0 (memory alone counts) or a GPU's full SM activity times something, e.g. 1.5"
            )
        if partition.time_limit_factor < 1.0:
            raise ConfigError(
                f"{origin}: partition.{name}.time_limit_factor is {partition.time_limit_factor:g}; "
                f"it must be 1 (a shared job gets no more time) or more"
            )
        _check_mig(name, partition, origin)
    if not config.features.mps:  # sharing jobs are time-sliced then, and are counted that way
        partitions = {name: replace(settings, sharing="streams") for name, settings in partitions.items()}
    return replace(config, partitions=partitions)


def _check_types(name: str, partition: PartitionConfig, origin: str) -> None:
    if partition.gpus and partition.gpu_type:
        raise ConfigError(
            f"{origin}: partition.{name} has gpu_type, for GPUs that are all alike, and gpus; remove one"
        )
    sized = {size.type for size in partition.sizes}
    for kind in partition.gpus:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", kind):
            raise ConfigError(f"{origin}: partition.{name}.gpus.{kind!r} is no type as Slurm spells them")
        if kind not in sized:
            raise ConfigError(
                f"{origin}: partition.{name}.gpus.{kind} has no size; set gpu_memory_mib or shards_per_gpu there"
            )


def _check_mig(name: str, partition: PartitionConfig, origin: str) -> None:
    try:
        profiles = parse_profiles(partition.mig_profiles)
    except ConfigError as exc:
        raise ConfigError(f"{origin}: partition.{name}.mig_profiles: {exc}") from exc
    if partition.mig == "map" and (partition.collocate or not profiles):
        raise ConfigError(
            f'{origin}: partition.{name} has mig = "map"; it needs mig_profiles (as in gres.conf) and '
            f"collocate = false, because MIG instances are not shared"
        )
