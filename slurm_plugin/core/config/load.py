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
from slurm_plugin.core.config.gpu_types import GpuType
from slurm_plugin.core.config.mig_profiles import parse_profiles
from slurm_plugin.core.config.partition import PartitionConfig
from slurm_plugin.core.config.settings import Config, Features, Paths, TelemetryConfig
from slurm_plugin.core.config.text import decoded, read_bytes
from slurm_plugin.core.config.typed_table import build
from slurm_plugin.core.errors import ConfigError, SettingError
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


def load_config(path: Path) -> Config:
    """Read rad.toml.

    Raises:
        ConfigError: The file is missing, not TOML, or a key or value is wrong; the text names the key and the fix.
    """
    return parse_text(_text_of(path), origin=str(path))


def located(error: SettingError, path: Path) -> SettingError:
    """Return an error that was found after reading with the file and the line that sets the key.

    Args:
        error: The error.
        path: Path of rad.toml.
    """
    from slurm_plugin.core.config import lines  # not at the top: hooks load this file with every job

    try:
        return lines.located(error, _text_of(path), str(path))
    except ConfigError:
        return error


def _text_of(path: Path) -> str:
    return decoded(read_bytes(str(path)), str(path))


def parse_text(text: str, *, origin: str, strict: bool = True) -> Config:
    """Return the configuration that a text describes.

    Args:
        text: The text of a rad.toml.
        origin: File name for messages.
        strict: Whether an unknown key is an error.

    Raises:
        ConfigError: It is not TOML, or a key or value is wrong; the text names the line.
    """
    try:
        return parse_config(toml.loads(text), origin=origin, strict=strict)
    except SettingError as exc:
        from slurm_plugin.core.config import lines  # not at the top: hooks load this file with every job

        raise lines.located(exc, text, origin) from exc
    except (toml.TOMLDecodeError, RecursionError) as exc:
        from slurm_plugin.core.config import lines

        raise lines.not_toml(exc, text, origin) from exc


def parse_config(tree: dict[str, Any], *, origin: str, strict: bool = True) -> Config:
    """Build the configuration from parsed TOML.

    Args:
        tree: The file as read.
        origin: File name for messages.
        strict: Whether an unknown key is an error; a file of another version may have keys that this one lacks.

    Raises:
        SettingError: A key is unknown (the nearest valid one is named) or a value is of the wrong kind.
    """
    rest = dict(tree)
    tables = rest.pop("partition", {})
    wrong = (
        ["partition"]
        if not isinstance(tables, dict)
        else [f"partition.{name}" for name, table in tables.items() if not isinstance(table, dict)]
    )
    if wrong:
        raise SettingError(origin, wrong[0], "partition must be tables, as in [partition.NAME]")
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
            key = f"{name}.idle_after"
            raise SettingError(origin, key, f"{key}: {exc}") from exc
    for name, partition in partitions.items():
        _check(f"partition.{name}", partition, origin)
    if not config.features.mps:  # sharing jobs are time-sliced then, and are counted that way
        partitions = {name: replace(settings, sharing="streams") for name, settings in partitions.items()}
    return replace(config, partitions=partitions)


def _check(where: str, partition: PartitionConfig, origin: str) -> None:
    if partition.shard_mib < 1:
        key = f"{where}.shard_mib"
        raise SettingError(origin, key, f"{key} is 0; one shard is at least 1 MiB")
    if partition.collocate and partition.shards < 1:
        fix = "set gpu_memory_mib (nvidia-smi shows it) or shards_per_gpu (as in gres.conf)"
        raise SettingError(origin, f"{where}.collocate", f"{where} collocates but has no GPU size; {fix}")
    _check_types(where, partition, origin)
    share = partition.confidence
    if not isinstance(share, str) and not LEAST_CONFIDENCE <= share <= MOST_CONFIDENCE:
        key = f"{where}.confidence"
        fix = f'it must be from {LEAST_CONFIDENCE} to {MOST_CONFIDENCE}, or "bound"'
        raise SettingError(origin, key, f"{key} is {share:g}; {fix}")
    if not 0.0 <= partition.compute_overcommit < float("inf"):
        key = f"{where}.compute_overcommit"
        fix = "it must be 0 (memory alone counts) or a GPU's full SM activity times something, e.g. 1.5"
        raise SettingError(origin, key, f"{key} is {partition.compute_overcommit:g}; {fix}")
    if partition.time_limit_factor < 1.0:
        key = f"{where}.time_limit_factor"
        fix = "it must be 1 (a shared job gets no more time) or more"
        raise SettingError(origin, key, f"{key} is {partition.time_limit_factor:g}; {fix}")
    _check_mig(where, partition, origin)


def _check_types(where: str, partition: PartitionConfig, origin: str) -> None:
    if partition.gpus and partition.gpu_type:
        problem = f"{where} has gpu_type, for GPUs that are all alike, and gpus; remove one"
        raise SettingError(origin, f"{where}.gpu_type", problem)
    sized = {size.type for size in partition.sizes}
    for kind in partition.gpus:
        key = f"{where}.gpus.{kind}"
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", kind):
            raise SettingError(origin, key, f"{where}.gpus.{kind!r} is no type as Slurm spells them")
        if kind not in sized:
            raise SettingError(origin, key, f"{key} has no size; set gpu_memory_mib or shards_per_gpu there")


def _check_mig(where: str, partition: PartitionConfig, origin: str) -> None:
    key = f"{where}.mig_profiles"
    try:
        profiles = parse_profiles(partition.mig_profiles)
    except ConfigError as exc:
        raise SettingError(origin, key, f"{key}: {exc}") from exc
    if partition.mig == "map" and (partition.collocate or not profiles):
        fix = "mig_profiles (as in gres.conf) and collocate = false, because MIG instances are not shared"
        raise SettingError(origin, f"{where}.mig", f'{where} has mig = "map"; it needs {fix}')
