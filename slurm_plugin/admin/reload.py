"""`rad reload`: check rad.toml, then make the daemons of this machine read it again."""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.config.last_good import acceptable
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import run
from slurm_plugin.radd.submission.prepare import checked_estimator

UNITS = ("radd", "rad-monitor")
_COMMAND_S = 10.0


def reload_units(config: Path) -> tuple[list[str], bool]:
    """Return a line for each daemon, and whether all that run here use the new rad.toml.

    Raises:
        ConfigError: radd or rad-monitor would refuse rad.toml; no daemon was notified.
    """
    checked_estimator(acceptable(config), config)
    lines, good, reached = [], True, 0
    for unit in UNITS:
        try:
            run(["systemctl", "is-active", "--quiet", unit], timeout_s=_COMMAND_S)
        except CommandError:
            lines.append(
                f"{unit}: not running under systemd here; if it runs without systemd, send it SIGHUP"
            )
            continue
        reached += 1
        try:
            run(["systemctl", "reload", unit], timeout_s=_COMMAND_S)
            lines.append(f"{unit}: signalled; for the result see: journalctl -u {unit}")
        except CommandError as exc:
            lines.append(f"{unit}: {exc}")
            good = False
    if not reached:
        lines.append("nothing was reloaded")
    return lines, good and reached > 0
