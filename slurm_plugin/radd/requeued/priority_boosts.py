"""Raise the priority of a rerun until it starts, if the failure was not its own.

The boost is applied through the job's nice value, which adds to the priority under every PriorityType and can be
reverted exactly; `scontrol update Priority=` would stop priority/multifactor from managing the job for good. A boost is
written to a file under paths.state before Slurm is changed, so that a restarted radd still reverts it. A job with a
priority set by an admin does not move: Slurm ignores its nice value. Where users may move priority between their jobs
(`scontrol top`), no boost is given: it would stay with a job that it was not meant for.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.files.atomic import replace_file
from slurm_plugin.core.logs.daemon_log import about
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.radd.requeued.boost_records import (
    DAY_S,
    BoostCause,
    BoostRecord,
    is_due,
    is_held,
    raised,
    record_for,
)
from slurm_plugin.slurm.control import JobChange, JobView, SlurmControl, Standing

log = logging.getLogger("radd")

_USER_TOP = "enable_user_top"
"""Option of SchedulerParameters (slurm.conf(5)): `scontrol top` swaps the nice values of a user's jobs."""


_OPTIONAL = ("lift", "nice_was")


class PriorityBooster:
    """The priority boosts of this cluster. Safe to use from several threads."""

    def __init__(self, path: Path, slurm: SlurmControl, clock: Clock, config: Callable[[], Config]) -> None:
        """Take over the boosts of an earlier radd.

        Args:
            path: The file of boosts.
            slurm: Slurm.
            clock: Time.
            config: Returns rad.toml as it is in force.
        """
        self._path, self._slurm, self._clock, self._config = path, slurm, clock, config
        self._lock = threading.Lock()
        self._records, self._seen = _read(path) or (), _version(path)

    @property
    def outstanding(self) -> bool:
        """Return whether any boost must still be reverted."""
        with self._lock:
            self._look()
            return any(not record.returned for record in self._records)

    def boost(self, job: JobView, cause: BoostCause) -> int | None:
        """Return the nice value that a waiting rerun gets now; None if it stays unchanged.

        Args:
            job: The rerun, as Slurm shows it.
            cause: The cause of its last end.

        Raises:
            SlurmError: Slurm does not answer.
        """
        config = self._config()
        settings = config.partition(job.partition)
        if settings is None or config.mode != "enforce" or is_held(job):
            return None
        if users_move_priority(self._slurm.config()):
            log.info(
                "job %d: priority not raised, as SchedulerParameters=%s lets users move it",
                job.job_id,
                _USER_TOP,
            )
            return None
        with self._lock:
            self._look()
            for record in self._records:  # Slurm did not answer then
                if not record.returned and (record.job_id, record.restarts) == (job.job_id, job.restarts):
                    return record.nice_boosted if job.nice == record.nice_before else None
            new = record_for(job, cause, settings, self._records, now_s=self._clock.now_s())
            if new is None or not self._write((*self._records, new)):
                return None
        by = new.nice_before - new.nice_boosted
        what = about(EventKind.PRIORITY_BOOSTED, job_id=job.job_id, user_id=job.user_id, by=by)
        log.info("job %d: priority raised by %d until it starts", job.job_id, by, extra=what)
        return new.nice_boosted

    def follow_requeue(self, job_id: int) -> None:
        """Keep a boost for one more start: the Prolog requeued the rerun, so it did not run."""
        with self._lock:
            self._look()
            self._write(
                tuple(
                    replace(record, restarts=record.restarts + 1)
                    if record.job_id == job_id and not record.returned
                    else record
                    for record in self._records
                )
            )

    def position_boosts(self) -> dict[int, int]:
        """Return by how much jobs are raised to their queue positions now, by job id."""
        with self._lock:
            self._look()
            return {record.job_id: record.lift for record in self._records if not record.returned}

    def raise_by(self, job: Standing, points: int) -> None:
        """Raise a waiting job to its queue position, until it starts.

        Args:
            job: The job, as Slurm shows it now.
            points: The total raise.

        Raises:
            SlurmError: Slurm does not answer.
        """
        with self._lock:
            self._look()
            of_job = [
                record for record in self._records if record.job_id == job.job_id and not record.returned
            ]
            old = of_job[0] if of_job else None
            new = raised(old, job, points, now_s=self._clock.now_s())
            if new is None or not self._write(
                (*(record for record in self._records if record is not old), new)
            ):
                return
        self._slurm.update(job.job_id, JobChange(nice=new.nice_boosted))
        what = about(EventKind.PRIORITY_BOOSTED, job_id=job.job_id, user_id=job.user_id, by=points)
        log.info("job %d: queue position restored, by %d points", job.job_id, points, extra=what)

    def collect(self) -> None:
        """Revert every boost whose rerun has started; where Slurm does not answer, retry next time."""
        with self._lock:
            self._look()
            open_records = [record for record in self._records if not record.returned]
        for record in open_records:
            try:
                job = self._slurm.job(record.job_id)
                if job is not None and not is_due(record, job):
                    continue
                if job is not None and job.nice in record.own_values:
                    self._slurm.update(record.job_id, JobChange(nice=record.nice_before))
            except SlurmError as exc:
                what = about(EventKind.TROUBLE, job_id=record.job_id)
                log.warning("job %d: priority boost not reverted yet: %s", record.job_id, exc, extra=what)
                continue
            what = about(EventKind.PRIORITY_RESTORED, job_id=record.job_id)
            log.info("job %d: priority boost reverted", record.job_id, extra=what)
            self._forget(record)

    def _look(self) -> None:
        """Read boosts written by another radd (a standby's, where both mount one folder). Call it under the lock."""
        now = _version(self._path)
        if now is not None and now != self._seen:
            found = _read(self._path)
            self._records, self._seen = self._records if found is None else found, now

    def _forget(self, ended: BoostRecord) -> None:
        with self._lock:
            self._look()
            self._write(
                tuple(
                    replace(record, returned=True)
                    if (record.job_id, record.time_s) == (ended.job_id, ended.time_s)
                    else record
                    for record in self._records
                )
            )

    def _write(self, records: tuple[BoostRecord, ...]) -> bool:
        """Write the boosts, without those that are both old and reverted. Call it under the lock."""
        now_s = self._clock.now_s()
        kept = tuple(
            record
            for record in records
            if not record.returned or (record.boost > 0 and now_s - record.time_s < DAY_S)
        )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps([_as_row(record) for record in kept]).encode(), mode=0o600)
        except OSError as exc:
            log.warning("%s: %s; no priority is raised", self._path, exc.strerror)
            return False
        self._records, self._seen = kept, _version(self._path)
        return True


def users_move_priority(config: Mapping[str, str]) -> bool:
    """Return whether users may move priority between their jobs, according to `scontrol show config`."""
    return _USER_TOP in config.get("SchedulerParameters", "").split(",")


def _as_row(record: BoostRecord) -> dict[str, object]:
    """Return a boost as it is stored."""
    return {name: value for name, value in asdict(record).items() if name not in _OPTIONAL or value}


def _version(path: Path) -> tuple[int, int] | None:
    """Return a value that changes with each version of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _read(path: Path) -> tuple[BoostRecord, ...] | None:
    """Return the boosts in a file; None if it cannot be read."""
    try:
        return tuple(BoostRecord(**row) for row in json.loads(path.read_bytes()))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError) as exc:
        log.warning("%s: %s; earlier priority boosts are unknown", path, exc)
        return None
