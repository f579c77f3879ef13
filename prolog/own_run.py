"""Whether a task's run had a Prolog: the one place that decides it.

A run has had none if the last that happened to its job on this node is an Epilog (core/ledger/ended_runs.py), or
if what the Prolog left names another owner or an earlier run, whose Epilog was lost. Only root writes either of them.
The restart count in a task's environment may be its submitter's, so where it speaks against the file, Slurm is asked.
Such a run must not start where Prologs place jobs: nothing is reserved for it, and its GPU may be another job's alone.
Everything else starts: partitions that rad.toml does not manage, `mode` and `placement` that do not place, jobs that
have had no Epilog here, as before an installation, and whatever cannot be told.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.ledger.ended_runs import EndedRuns
from slurm_plugin.core.ledger.job_file import JobFile
from slurm_plugin.core.ledger.store import boot_id

WHY = "slurmd started this run without a Prolog, so no GPU is booked for it"
SOON_S = 5.0
"""After its Prolog a batch script starts within less, where the site has no slow Prolog of its own."""
MOST_TIMES = 20
"""A job that was restarted so often does not go back once more."""


def without_prolog(job_id: int, config: Config, task: Mapping[str, str], *, is_script: bool) -> bool:
    """Return whether a task belongs to a run that must not start, since it had no Prolog.

    Args:
        job_id: The job.
        config: rad.toml.
        task: The task's own environment.
        is_script: Whether the task is the batch script, whose environment tells the restart count.
    """
    run = Path(config.paths.run)
    ended = EndedRuns(run).of_job(job_id)
    if ended is not None:
        return _places(config, ended.partition)
    held = JobFile(run, job_id).read(boot_id=boot_id()).held
    if held is None or not _places(config, held.partition):
        return False
    if held.user_id not in (0, os.getuid()):
        return True
    told = task.get("SLURM_RESTART_COUNT", "")
    differs = is_script and told.isdecimal() and int(told) > held.restart
    return differs and _restarts(job_id, config) > held.restart


def of_an_earlier_job(file: JobFile) -> bool:
    """Return whether what a Prolog left was there long before the batch script that finds it starts now.

    A slurmctld that lost its latest state gives ids anew, and slurmd runs no Prolog for an id that it knows.

    Args:
        file: Of the job.
    """
    created_s = file.read(boot_id=boot_id()).created_s
    return created_s is not None and SystemClock().monotonic_s() - created_s > SOON_S


def _places(config: Config, partition: str) -> bool:
    settings = config.partition(partition)
    return config.places and settings is not None and settings.collocate


def _restarts(job_id: int, config: Config) -> int:
    """Return how often Slurm restarted a job; 0 if it does not say."""
    from slurm_plugin.slurm.commands import SlurmCommands
    from slurm_plugin.slurm.files.conf_files import find_slurm_conf

    slurm_conf = find_slurm_conf(config.paths.slurm_conf, {})
    try:
        view = SlurmCommands(slurm_conf=str(slurm_conf or "")).job(job_id)
    except SlurmError:
        return 0
    return 0 if view is None else view.restarts
