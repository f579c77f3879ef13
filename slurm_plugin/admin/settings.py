"""The settings that a command shows something by: those in force on this machine, never silently others."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import click

from slurm_plugin.core.config.last_good import InForce, config_to_show
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError


def read_settings(rad_toml: Path, *, of_other_machines: bool = False) -> InForce:
    """Return the settings in force; if they are not those of rad.toml, one line on stderr says so.

    Args:
        rad_toml: Path of rad.toml.
        of_other_machines: Whether the command shows only what other machines answer, so that it also runs on one
            without rad.toml, by the defaults.

    Raises:
        ConfigError: rad.toml cannot be used, and there is no last good copy; the text names the line and the fix.
    """
    try:
        found = config_to_show(rad_toml)
    except ConfigError as exc:
        missing = f"{rad_toml}: {os.strerror(errno.ENOENT)}"
        if not of_other_machines or not str(exc).startswith(missing):
            raise
        found = InForce(config=Config(), trouble=f"{missing}; the defaults count")
    if found.trouble:
        click.echo(f"rad {click.get_current_context().info_name}: {found.trouble}", err=True)
    return found
