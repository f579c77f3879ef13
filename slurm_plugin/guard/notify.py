"""Write warnings into a job's AdminComment. The reason for stopping a job is written by its Epilog."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from slurm_plugin.core.comments.signed_comment import read_key
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.guard.finding import Finding
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.files.conf_files import find_slurm_conf
from slurm_plugin.slurm.warning import warn

ANSWER_S = 3.0


class OwnerNotifier:
    """Reports to Slurm in a separate thread, so that sampling does not wait."""

    def __init__(self, config: Config) -> None:
        self._configured, self._key = config.paths.slurm_conf, Path(config.paths.key)

    def notify(self, finding: Finding) -> None:
        """Write a warning and return at once; if slurmctld is away, it stays in the log only."""
        if finding.job_id is not None:
            name = f"tell-{finding.job_id}"
            threading.Thread(target=self._notify, args=(finding,), name=name, daemon=True).start()

    def _notify(self, finding: Finding) -> None:
        slurm_conf = find_slurm_conf(self._configured, os.environ)
        control = SlurmCommands(slurm_conf=str(slurm_conf or ""), timeout_s=ANSWER_S)
        try:
            if finding.job_id is not None:
                warn(
                    finding.job_id,
                    finding.sentence(),
                    control,
                    restart=finding.restart,
                    key=read_key(self._key),
                )
        except (ConfigError, SlurmError) as exc:
            print(
                f"rad-monitor: job {finding.job_id}: warning not written: {exc}", file=sys.stderr, flush=True
            )
