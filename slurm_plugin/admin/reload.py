"""`rad reload`: let the daemons of this machine read rad.toml again, once it is known to be good."""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import run

UNITS = ("radd", "rad-monitor")
_COMMAND_S = 10.0


def reload_units(config: Path) -> tuple[list[str], bool]:
    """Return a line on each daemon, and whether all that run here took over what rad.toml says.

    Raises:
        ConfigError: rad.toml is wrong; nobody was told of it.
    """
    load_config(config)
    lines, good = [], True
    for unit in UNITS:
        try:
            run(["systemctl", "is-active", "--quiet", unit], timeout_s=_COMMAND_S)
        except CommandError:
            lines.append(f"{unit}: does not run here under systemd; where it runs without, send it SIGHUP")
            continue
        try:
            run(["systemctl", "reload", unit], timeout_s=_COMMAND_S)
            lines.append(f"{unit}: told; journalctl -u {unit} says what came of it")
        except CommandError as exc:
            lines.append(f"{unit}: {exc}")
            good = False
    return lines, good
