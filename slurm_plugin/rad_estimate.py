"""The program rad-estimate, on a machine that may belong to a cluster with RAD."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from gpumemnet.cli import main as estimate_main
from gpumemnet.cli.cluster import ConfiguredCluster
from gpumemnet.errors import SetupError
from slurm_plugin.core.config import DEFAULT

VARIABLE = "RAD_CONFIG"


def find_cluster(given: Path | None) -> ConfiguredCluster | None:
    """Return the cluster that this machine belongs to; None if it has no rad.toml.

    Args:
        given: A rad.toml that the user names; None for $RAD_CONFIG, else /etc/rad/rad.toml.

    Raises:
        SetupError: The file is missing, cannot be read or is wrong.
    """
    path = given or Path(os.environ.get(VARIABLE) or DEFAULT)
    if path == Path(DEFAULT) and not path.exists():
        return None
    from slurm_plugin.core.errors import RadError  # a machine without RAD need not load its decisions
    from slurm_plugin.dry_run import DryRun

    try:
        return DryRun(path, env=os.environ, folder=Path.cwd(), user_id=os.getuid())
    except RadError as exc:
        raise SetupError(str(exc)) from exc


def main() -> None:
    """Run rad-estimate."""
    gc.disable()  # one answer leaves no cycles worth the search, a twentieth of its time
    estimate_main(find_cluster)
