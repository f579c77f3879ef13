"""Collect what this machine knows of a job: from Slurm, the history, the events, the node's rad-monitor."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from slurm_plugin.admin.history import models_in, runs_in
from slurm_plugin.admin.job_report.report import JobFacts
from slurm_plugin.admin.top.command import port_of
from slurm_plugin.admin.top.gather import Gatherer
from slurm_plugin.core.clock import Clock
from slurm_plugin.core.comments.admin_comment import read_note
from slurm_plugin.core.comments.signed_comment import read_key, read_signed_booking
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.core.files.append_log import NewLines
from slurm_plugin.core.history.runs import Run
from slurm_plugin.core.logs.events import Entry, from_line
from slurm_plugin.core.logs.hook_log import EVENTS
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.monitor.export.status import GpuStatus
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.files.conf_files import find_slurm_conf, has_slurmdbd
from slurm_plugin.slurm.queries.job_ids import job_id_of
from slurm_plugin.slurm.queries.job_times import JobTimes, job_times

_NOT_ENDED = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED")
ANSWER_S = 10.0
"""Time-out for Slurm's answer on a node's address."""


def find(job_id: int, config: Config, clock: Clock) -> JobFacts:
    """Return what is known here of a job; sources that cannot be read are listed, and do not stop the search.

    Args:
        job_id: Slurm's job id.
        config: rad.toml.
        clock: Time.
    """
    missing: list[str] = []
    times = _times(job_id, config, missing)
    booking = _booking(times, config, missing)
    state = Path(config.paths.state)
    try:
        runs = runs_in(state)
    except ConfigError as exc:
        runs = []
        missing.append(f"runs: {exc}")
    else:
        missing.extend(_unrecorded(job_id, times, booking, runs, config))
    return JobFacts(
        job_id=job_id,
        times=times,
        booking=booking,
        runs=runs,
        models=models_in(state),
        events=_events(job_id, Path(config.paths.log) / EVENTS, missing),
        live=_live(times, config, clock, missing),
        remembered=config.features.history,
        missing=tuple(missing),
    )


def numbered(job: str, config: Config) -> int:
    """Return the number of a job or task that a person named.

    Args:
        job: As squeue shows it.
        config: rad.toml.

    Raises:
        ConfigError: It is no job id, or Slurm does not know the task.
        SlurmError: Slurm does not answer.
    """
    accounts = has_slurmdbd(find_slurm_conf(config.paths.slurm_conf, os.environ))
    return job_id_of(job, slurm_conf=config.paths.slurm_conf, accounts=accounts)


def _unrecorded(
    job_id: int, times: JobTimes | None, booking: Booking | None, runs: Sequence[Run], config: Config
) -> Iterator[str]:
    """Yield why no run of a job is here although one has ended: its Prolog or Slurm requeues without a run."""
    if times is None or booking is None or not config.features.history:
        return
    if any(run.job_id == job_id for run in runs):
        return
    note = read_note(times.admin_comment)
    if (times.nodes and times.state not in _NOT_ENDED) or (note is not None and note.event == "recovered"):
        yield (
            f"its runs: run rad report {job_id} on {times.nodes or 'its node'}, or share {config.paths.state}, "
            "where Epilogs record them, with the nodes"
        )


def _times(job_id: int, config: Config, missing: list[str]) -> JobTimes | None:
    conf = find_slurm_conf(config.paths.slurm_conf, os.environ)
    accounts = has_slurmdbd(conf)
    try:
        found = job_times(job_id, slurm_conf=config.paths.slurm_conf, accounts=accounts)
    except SlurmError as exc:
        missing.append(f"Slurm: {exc}")
        return None
    if found is None:
        missing.append(
            "Slurm: it "
            + ("has no such job" if accounts else "no longer has the job, and there is no slurmdbd")
        )
    return found


def _booking(times: JobTimes | None, config: Config, missing: list[str]) -> Booking | None:
    if times is None:
        return None
    try:
        return read_signed_booking(times.comment, user_id=times.user_id, key=read_key(Path(config.paths.key)))
    except ConfigError as exc:
        hidden = isinstance(exc.__cause__, PermissionError)  # a user needs no advice on the key's owner
        why = "only root may read the cluster's key; run this on the controller, as root" if hidden else exc
        missing.append(f"booking: {why}")
        return None


def _events(job_id: int, path: Path, missing: list[str]) -> list[Entry]:
    try:
        lines = NewLines(path).read()
    except OSError as exc:
        missing.append(f"events: {path}: {exc.strerror}")
        return []
    mark = f'"job":{job_id},'.encode()
    return [entry for line in lines if mark in line and (entry := from_line(line)) is not None]


def _live(
    times: JobTimes | None, config: Config, clock: Clock, missing: list[str]
) -> list[tuple[str, GpuStatus]]:
    """Query the rad-monitor of the job's node; RAD does not manage jobs on several nodes."""
    if times is None or times.state not in ("RUNNING", "COMPLETING") or not times.nodes.isascii():
        return []
    if not config.telemetry.serve or any(mark in times.nodes for mark in "[,"):
        return []
    name = times.nodes
    try:
        view = SlurmCommands(slurm_conf=config.paths.slurm_conf, timeout_s=ANSWER_S).node(name)
    except SlurmError:
        view = None
    host = (view.address if view else "") or name
    fleet = Gatherer({name: (host, port_of(config))}, clock=clock, queue=None).look()
    for node in fleet.nodes:
        if node.trouble:
            missing.append(f"rad-monitor of {name}: {node.trouble}")
    return [
        (node.name, gpu) for node, gpu in fleet.gpus() if any(job.job_id == times.job_id for job in gpu.jobs)
    ]
