"""Defaults of `rad install`, read from existing files, as after an upgrade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.config.load import load_config
from slurm_plugin.slurm.files.conf_files import settings_of

PARTITION, SLURM_USER, SLURM_FOLDER = "gpu", "slurm", "/etc/slurm"
"""Defaults if no file exists yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteValues:
    """Values found in the site's files.

    Attributes:
        partition: The partition that shares.
        gpu_memory_mib: Usable memory of one of its GPUs; None if unknown.
        slurm_user: User that slurmctld runs as.
    """

    partition: str = PARTITION
    gpu_memory_mib: int | None = None
    slurm_user: str = SLURM_USER


def found(rad_toml: Path, slurm_conf: Path, partition: str | None) -> SiteValues:
    """Return the values found.

    Args:
        rad_toml: RAD's, from an earlier install.
        slurm_conf: Slurm's.
        partition: The requested partition; None for the one in rad.toml.

    Raises:
        ConfigError: rad.toml is there and cannot be used, so that its partition and GPUs would be made up.
    """
    # slurm.conf(5): the default of SlurmUser is root.
    user = settings_of(slurm_conf).get("slurmuser", "root") if slurm_conf.is_file() else SLURM_USER
    if not rad_toml.exists():
        return SiteValues(partition=partition or PARTITION, slurm_user=user)
    config = load_config(rad_toml)
    shares = [name for name, settings in config.partitions.items() if settings.collocate]
    name = partition or (shares or [config.default_partition or PARTITION])[0]
    known = config.partitions.get(name)
    return SiteValues(
        partition=name, gpu_memory_mib=(known and known.gpu_memory_mib) or None, slurm_user=user
    )


def slurm_folder(given: str | None, root: Path, env: Mapping[str, str], rad_toml: Path) -> str:
    """Return the folder of slurm.conf: as given, that of SLURM_CONF, as in rad.toml, or the usual one.

    Args:
        given: The value of `--slurm`; None without it.
        root: The root folder of all paths; SLURM_CONF is a file of this machine.
        env: Environment variables.
        rad_toml: RAD's, from an earlier install.

    Raises:
        ConfigError: Only rad.toml could name it, and it cannot be used.

    >>> slurm_folder(None, Path("/"), {"SLURM_CONF": "/opt/slurm/slurm.conf"}, Path("/none/rad.toml"))
    '/opt/slurm'
    >>> slurm_folder(None, Path("/image"), {"SLURM_CONF": "/opt/slurm/slurm.conf"}, Path("/none/rad.toml"))
    '/etc/slurm'
    """
    conf = env.get("SLURM_CONF") if root == Path("/") else None
    if not given and not conf and rad_toml.exists():
        conf = load_config(rad_toml).paths.slurm_conf
    return given or (str(Path(conf).absolute().parent) if conf else SLURM_FOLDER)


def named_slurm_conf(folder: str) -> str:
    """Return paths.slurm_conf of a new rad.toml: daemons and hooks have no SLURM_CONF of the shell that installs.

    Args:
        folder: Folder of slurm.conf.

    >>> named_slurm_conf("/opt/slurm/etc"), named_slurm_conf("/etc/slurm")
    ('/opt/slurm/etc/slurm.conf', '')
    """
    return "" if folder == SLURM_FOLDER else f"{folder}/slurm.conf"
