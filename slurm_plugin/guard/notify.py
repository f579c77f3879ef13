"""Write warnings into a job's AdminComment. The reason for stopping a job is written by its Epilog."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from slurm_plugin.core.comments.admin_comment import Note, read_signed, signed_note
from slurm_plugin.core.comments.signed_comment import read_key
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.guard.finding import Finding
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import JobChange, SlurmControl
from slurm_plugin.slurm.files.conf_files import find_slurm_conf

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
            warn(finding, control, key=read_key(self._key))
        except (ConfigError, SlurmError) as exc:
            print(
                f"rad-monitor: job {finding.job_id}: warning not written: {exc}", file=sys.stderr, flush=True
            )


def warn(finding: Finding, control: SlurmControl, *, key: bytes) -> None:
    """Write a signed warning into the AdminComment of a job; counts in the previous note are kept.

    Args:
        finding: The violation, with the job and the restart count of its run.
        control: Slurm.
        key: The cluster's key.

    Raises:
        SlurmError: Slurm refused or did not answer.
    """
    view = None if finding.job_id is None else control.job(finding.job_id)
    if view is None or view.restarts != finding.restart:
        return  # that run is over
    job_id, user_id = view.job_id, view.user_id
    before = read_signed(view.admin_comment, job_id=job_id, user_id=user_id, key=key)
    note = Note(
        event="warned",
        restart=finding.restart,
        server_ends=None if before is None else before.server_ends,
        detail=finding.sentence(),
    )
    text = signed_note(note, job_id=job_id, user_id=user_id, key=key)
    control.update(job_id, JobChange(admin_comment=text))
