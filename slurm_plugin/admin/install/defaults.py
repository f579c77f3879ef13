"""Defaults of `rad install`, read from existing files, as after an upgrade."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.slurm.files.conf_files import settings_of

PARTITION, SLURM_USER = "gpu", "slurm"
"""Defaults if no file exists yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Values found in the site's files.

    Attributes:
        partition: The partition that shares.
        gpu_memory_mib: Usable memory of one of its GPUs; None if unknown.
        slurm_user: User that slurmctld runs as.
    """

    partition: str = PARTITION
    gpu_memory_mib: int | None = None
    slurm_user: str = SLURM_USER


def found(rad_toml: Path, slurm_conf: Path, partition: str | None) -> Found:
    """Return the values found; a file that cannot be read counts as missing.

    Args:
        rad_toml: RAD's, from an earlier install.
        slurm_conf: Slurm's.
        partition: The requested partition; None for the one in rad.toml.
    """
    # slurm.conf(5): the default of SlurmUser is root.
    user = settings_of(slurm_conf).get("slurmuser", "root") if slurm_conf.is_file() else SLURM_USER
    try:
        config = load_config(rad_toml)
    except ConfigError:
        return Found(partition=partition or PARTITION, slurm_user=user)
    shares = [name for name, settings in config.partitions.items() if settings.collocate]
    name = partition or (shares or [config.default_partition or PARTITION])[0]
    known = config.partitions.get(name)
    return Found(partition=name, gpu_memory_mib=(known and known.gpu_memory_mib) or None, slurm_user=user)
