"""Prepare what answers submissions from rad.toml and slurm.conf, for radd and for the dry run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpumemnet.records import replace
from slurm_plugin.core.config.load import DEFAULT_PATH, Config, located
from slurm_plugin.core.errors import SettingError
from slurm_plugin.core.history.site_quantiles_file import read_learned
from slurm_plugin.estimate import Estimator
from slurm_plugin.radd.submission.submit import EarlierRuns, Submission
from slurm_plugin.slurm.files.conf_files import (
    chosen_after_lua,
    find_slurm_conf,
    gres_of_nodes,
    settings_of,
)
from slurm_plugin.slurm.files.gpu_defaults import gpu_defaults_of
from slurm_plugin.slurm.obstacles import Obstacle, obstacles
from slurm_plugin.slurm.versions import Version, max_shard_gpus_of, traits, whole_as_gpu


def prepared(
    config: Config,
    version: Version,
    *,
    key: bytes,
    peaks: EarlierRuns | None,
    running: str | None = None,
    rad_toml: Path = DEFAULT_PATH,
) -> tuple[Submission, tuple[Obstacle, ...]]:
    """Return what answers submissions, and what prevents the cluster from sharing GPUs.

    Args:
        config: rad.toml.
        version: The running Slurm.
        key: The cluster's key; b"" where nothing is signed.
        peaks: Records of earlier runs; None if there are none.
        running: SelectTypeParameters of the running slurmctld, if known.
        rad_toml: Path of rad.toml, for messages.

    Raises:
        ConfigError: rad.toml names an estimator or a GPU that gpumemnet does not have.
    """
    estimator = checked_estimator(config, rad_toml)
    learned = read_learned(config.site_quantiles)
    slurm_conf = find_slurm_conf(config.paths.slurm_conf, os.environ)
    settings = {} if slurm_conf is None else settings_of(slurm_conf)
    node_gres = () if slurm_conf is None else gres_of_nodes(slurm_conf)
    in_the_way = _obstacles(config, version, settings, node_gres)
    if chosen_after_lua(settings):
        config = replace(config, default_partition="")  # not known yet where such a job starts
    submission = Submission(
        config=config,
        leave_jobs=next((one.text for one in in_the_way if one.leave_jobs), ""),
        key=key,
        estimator=estimator,
        peaks=peaks if config.features.history else None,
        site=learned.groups if learned.groups and learned.made_for == estimator.made_for else {},
        whole_as_gpu={
            name: whole_as_gpu(partition, version) for name, partition in config.partitions.items()
        },
        reserves_shards=traits(version).reserves_shards,
        forgets_shards=traits(version).forgets_shards,
        gpu_after_shards=traits(version).gpu_after_requeue,
        max_shard_gpus=_max_shard_gpus(version, settings, running, node_gres),
        gpu_defaults={} if slurm_conf is None else gpu_defaults_of(slurm_conf),
    )
    return submission, in_the_way


def checked_estimator(config: Config, rad_toml: Path) -> Estimator:
    """Return the site's estimator, if it can answer for every GPU type in rad.toml.

    Args:
        config: rad.toml.
        rad_toml: Its path, for messages.

    Raises:
        ConfigError: gpumemnet does not have it, or a GPU.
    """
    estimator = Estimator.from_config(config)
    try:
        estimator.check()
        for name, partition in config.partitions.items():
            for kind, gpu in partition.gpus.items():
                estimator.on(gpu).check(f"partition.{name}.gpus.{kind}.")
    except SettingError as exc:
        raise located(exc, rad_toml) from exc
    return estimator


def _max_shard_gpus(
    version: Version, settings: Mapping[str, str], running: str | None, node_gres: Sequence[str]
) -> int:
    """Return on how many GPUs of a node one job may have shards, by slurm.conf and by the running slurmctld."""
    written = settings.get("selecttypeparameters", "")
    both = (written,) if running is None else (written, running)
    return min(max_shard_gpus_of(version, parameters, node_gres) for parameters in both)


def _obstacles(
    config: Config, version: Version, settings: Mapping[str, str], node_gres: Sequence[str]
) -> tuple[Obstacle, ...]:
    if not settings:
        return obstacles(version, {})
    types = sorted({kind for partition in config.partitions.values() for kind in partition.gpus})
    return obstacles(version, settings, node_gres, types)
