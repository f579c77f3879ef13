"""What `rad install` takes from what is there where nobody says otherwise, as after an upgrade."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.slurm.files.conf_files import settings_of

PARTITION, SLURM_USER = "gpu", "slurm"
"""Where nothing is there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the files of a site say.

    Attributes:
        partition: The partition that shares.
        gpu_memory_mib: Usable memory of one of its GPUs; None if nothing tells.
        slurm_user: User that slurmctld runs as.
    """

    partition: str = PARTITION
    gpu_memory_mib: int | None = None
    slurm_user: str = SLURM_USER


def found(rad_toml: Path, slurm_conf: Path, partition: str | None) -> Found:
    """Return what is there; of a file that cannot be read, what would be without it.

    Args:
        rad_toml: Ours, of an earlier install.
        slurm_conf: Slurm's.
        partition: The partition that was asked for; None for rad.toml's own.
    """
    # slurm.conf(5): without SlurmUser it is root.
    user = settings_of(slurm_conf).get("slurmuser", "root") if slurm_conf.is_file() else SLURM_USER
    try:
        config = load_config(rad_toml)
    except ConfigError:
        return Found(partition=partition or PARTITION, slurm_user=user)
    name = partition or config.default_partition or PARTITION
    known = config.partitions.get(name)
    return Found(partition=name, gpu_memory_mib=(known and known.gpu_memory_mib) or None, slurm_user=user)
