"""Choose how a daemon or `rad` accesses Slurm; hooks always use Slurm's own commands."""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.load import Config
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import SlurmControl


def open_control(config: Config, clock: Clock) -> SlurmControl:
    """Return the back end that rad.toml names.

    Args:
        config: rad.toml.
        clock: Time.

    Raises:
        SlurmError: pyslurm is configured and cannot be used; the text says why.
    """
    conf = config.paths.slurm_conf
    if config.slurm_backend == "commands":
        return SlurmCommands(slurm_conf=conf)
    from slurm_plugin.slurm.pyslurm import PyslurmControl

    return PyslurmControl(slurm_conf=Path(conf) if conf else None, clock=clock)
