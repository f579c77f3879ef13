"""Decide whether a task's run had a Prolog.

A run had none if the last hook of its job on this node is an Epilog (core/ledger/ended_runs.py), or if the Prolog's
record names another owner, an earlier run, whose Epilog was lost, or other GPUs: a job that slurmctld starts under the
id of one that it forgot. Only root writes either of them.
Restart count and GPUs in a task's environment may be its submitter's, so if they contradict the file, Slurm is queried.
Such a run must not start where Prologs place jobs: it has no allocation, and its GPU may be exclusive to another job.
Everything else starts: partitions that rad.toml does not manage, `mode` and `placement` that do not place, jobs without
an Epilog here, as before an installation, and all undecidable cases.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.ledger.ended_runs import EndedRuns
from slurm_plugin.core.ledger.job_file import JobFile
from slurm_plugin.core.ledger.store import boot_id
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.slurm.node.hook_env import parse_indices

if TYPE_CHECKING:
    from slurm_plugin.slurm.commands import SlurmCommands
    from slurm_plugin.slurm.control import JobView

WHY = "slurmd started this run without a Prolog, so no GPU is booked for it"
SOON_S = 5.0
"""A batch script starts within less after its Prolog, unless the site's Prolog is slow."""
MOST_TIMES = 20
"""A job restarted this often is not requeued again."""


def without_prolog(job_id: int, config: Config, task: Mapping[str, str], *, is_script: bool) -> bool:
    """Return whether a task belongs to a run that must not start, since it had no Prolog.

    Args:
        job_id: The job.
        config: rad.toml.
        task: The task's own environment.
        is_script: Whether the task is the batch script, whose environment has the restart count.
    """
    run = Path(config.paths.run)
    ended = EndedRuns(run).of_job(job_id)
    if ended is not None:
        return _places(config, ended.partition)
    allocation = JobFile(run, job_id).read(boot_id=boot_id()).allocation
    if allocation is None or not _places(config, allocation.partition):
        return False
    if allocation.user_id not in (0, os.getuid()):
        return True
    if not is_script:
        return False
    restart_text = task.get("SLURM_RESTART_COUNT", "")
    if restart_text.isdecimal() and int(restart_text) > allocation.restart:
        return _restarts(job_id, config) > allocation.restart
    return _has_other_gpus(job_id, allocation, config, task)


def of_an_earlier_job(file: JobFile, job_id: int, booked: str, config: Config) -> bool:
    """Return whether a Prolog's record is much older than the batch script that finds it, or books what it does not.

    A slurmctld that lost its latest state assigns ids again, and slurmd runs no Prolog for an id that it knows.

    Args:
        file: The job's file.
        job_id: The job.
        booked: Number of shards in the file.
        config: rad.toml.
    """
    created_s = file.read(boot_id=boot_id()).created_s
    if created_s is None:
        return False
    if SystemClock().monotonic_s() - created_s > SOON_S:
        return True
    view = _view(job_id, config)
    if view is None:
        return False
    if booked == "0":  # a booking of `gpu:1` names no shards
        return ":ask=" in view.comment
    return f":ask={booked}:" not in view.comment


def _has_other_gpus(job_id: int, allocation: Allocation, config: Config, task: Mapping[str, str]) -> bool:
    """Return whether Slurm gave a job other GPUs than its record names, by its environment and by slurmctld."""
    try:
        gpu_indices = set(parse_indices(task.get("SLURM_JOB_GPUS", "")))
    except ValueError:
        return False
    if not gpu_indices or not allocation.gpu_indices or gpu_indices == set(allocation.gpu_indices):
        return False
    return gpu_indices == set(_given_indices(job_id, config))


def _places(config: Config, partition: str) -> bool:
    settings = config.partition(partition)
    return config.places and settings is not None and settings.collocate


def _restarts(job_id: int, config: Config) -> int:
    """Return how often Slurm restarted a job; 0 if Slurm does not answer."""
    view = _view(job_id, config)
    return 0 if view is None else view.restarts


def _given_indices(job_id: int, config: Config) -> tuple[int, ...]:
    """Return the indices of a job's GPUs according to Slurm; nothing if it does not answer."""
    try:
        return slurm_of(config).given_indices(job_id)
    except SlurmError:
        return ()


def _view(job_id: int, config: Config) -> JobView | None:
    """Return a job as Slurm has it; None if Slurm does not answer or does not know it."""
    try:
        return slurm_of(config).job(job_id)
    except SlurmError:
        return None


def slurm_of(config: Config, *, timeout_s: float = 3.0) -> SlurmCommands:
    """Open Slurm by rad.toml: slurmctld's address must not come from a task's variables, which the user sets.

    Args:
        config: rad.toml.
        timeout_s: Time for one answer.
    """
    from slurm_plugin.slurm.commands import SlurmCommands
    from slurm_plugin.slurm.files.conf_files import find_slurm_conf

    slurm_conf = find_slurm_conf(config.paths.slurm_conf, {})
    return SlurmCommands(slurm_conf=str(slurm_conf or ""), timeout_s=timeout_s)
