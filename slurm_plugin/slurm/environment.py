"""The environment that Slurm's programs run in when we start them: nothing of a user's, and one language."""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.process.run import SYSTEM_PATH


def slurm_environment(slurm_conf: Path | str | None) -> dict[str, str]:
    """Return all variables of a program of Slurm's.

    Args:
        slurm_conf: Path for SLURM_CONF; None or "" lets the program find slurm.conf.

    >>> slurm_environment("/etc/slurm/slurm.conf")["SLURM_CONF"], "SLURM_CONF" in slurm_environment(None)
    ('/etc/slurm/slurm.conf', False)
    """
    named = {"SLURM_CONF": str(slurm_conf)} if slurm_conf else {}
    return {"PATH": ":".join(SYSTEM_PATH), "LC_ALL": "C.UTF-8", **named}
