"""Write into a job's AdminComment what it was warned of; what it was stopped for, its Epilog writes."""

from __future__ import annotations

import os
import sys
import threading

from slurm_plugin.core.config import Config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.note import Note, format_note
from slurm_plugin.guard.finding import Finding
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.conf_files import find_slurm_conf
from slurm_plugin.slurm.control import JobChange

ANSWER_S = 3.0


class Teller:
    """Tells Slurm, in a thread of its own: sampling waits for nobody."""

    def __init__(self, config: Config) -> None:
        self._configured = config.paths.slurm_conf

    def tell(self, finding: Finding) -> None:
        """Write down a warning, and return at once; if slurmctld is away it stays in the log alone."""
        if finding.job_id is not None:
            name = f"tell-{finding.job_id}"
            threading.Thread(target=self._tell, args=(finding,), name=name, daemon=True).start()

    def _tell(self, finding: Finding) -> None:
        slurm_conf = find_slurm_conf(self._configured, os.environ)
        control = SlurmCommands(slurm_conf=str(slurm_conf or ""), timeout_s=ANSWER_S)
        note = Note(event="warned", detail=finding.sentence())
        try:
            control.update(finding.job_id or 0, JobChange(admin_comment=format_note(note)))
        except SlurmError as exc:
            print(f"rad-monitor: job {finding.job_id} not told: {exc}", file=sys.stderr, flush=True)
