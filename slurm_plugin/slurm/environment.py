"""Environment of Slurm's programs when RAD starts them: no variables of users, and a fixed locale."""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.process.run import SYSTEM_PATH


def slurm_environment(slurm_conf: Path | str | None) -> dict[str, str]:
    """Return all environment variables for one of Slurm's programs.

    Args:
        slurm_conf: Path for SLURM_CONF; None or "" lets the program find slurm.conf.

    >>> slurm_environment("/etc/slurm/slurm.conf")["SLURM_CONF"], "SLURM_CONF" in slurm_environment(None)
    ('/etc/slurm/slurm.conf', False)
    """
    named = {"SLURM_CONF": str(slurm_conf)} if slurm_conf else {}
    return {"PATH": ":".join(SYSTEM_PATH), "LC_ALL": "C.UTF-8", **named}
