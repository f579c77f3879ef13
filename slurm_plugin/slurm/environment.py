"""Environment of Slurm's programs when RAD starts them: no variables of users, and a fixed locale."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_plugin.core.process.run import SYSTEM_PATH


def slurm_environment(slurm_conf: Path | str | None) -> dict[str, str]:
    """Return all environment variables for one of Slurm's programs.

    Args:
        slurm_conf: Path for SLURM_CONF, as paths.slurm_conf of a rad.toml, which may be that of another machine; if
            there is no such file, this program's own SLURM_CONF counts, and else the program finds slurm.conf.

    >>> slurm_environment("/etc/passwd")["SLURM_CONF"]
    '/etc/passwd'
    """
    named = next(
        (path for path in (slurm_conf, os.environ.get("SLURM_CONF")) if path and Path(path).is_file()), None
    )
    return {"PATH": ":".join(SYSTEM_PATH), "LC_ALL": "C.UTF-8"} | (
        {"SLURM_CONF": str(named)} if named else {}
    )
