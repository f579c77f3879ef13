"""Write warnings into a job's AdminComment. The reason for stopping a job is written by its Epilog."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path

from slurm_plugin.core.comments.signed_comment import read_key
from slurm_plugin.core.config.load import Paths
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.guard.violation import Violation
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.files.conf_files import find_slurm_conf
from slurm_plugin.slurm.warning import warn

ANSWER_S = 3.0


def notify(violation: Violation, paths: Paths) -> None:
    """Write a warning in a separate thread; if slurmctld is away, it stays in the log only.

    Args:
        violation: What the warning is about.
        paths: Those of rad.toml.
    """
    if violation.job_id is not None:
        arguments = (violation.job_id, violation, paths)
        name = f"tell-{violation.job_id}"
        with contextlib.suppress(RuntimeError):  # the node has no pid left
            threading.Thread(target=_write, args=arguments, name=name, daemon=True).start()


def _write(job_id: int, violation: Violation, paths: Paths) -> None:
    slurm_conf = find_slurm_conf(paths.slurm_conf, os.environ)
    control = SlurmCommands(slurm_conf=str(slurm_conf or ""), timeout_s=ANSWER_S)
    try:
        key = read_key(Path(paths.key))
        warn(job_id, violation.sentence(), control, restart=violation.restart, key=key)
    except (ConfigError, SlurmError) as exc:
        print(f"rad-monitor: job {job_id}: warning not written: {exc}", file=sys.stderr, flush=True)
