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
from slurm_plugin.radd.loans import DAY_S, Claim, Loan, held, is_due, loan_for, raised
from slurm_plugin.slurm.control import JobChange, JobView, SlurmControl, Standing

log = logging.getLogger("radd")

_USER_TOP = "enable_user_top"
"""Option of SchedulerParameters (slurm.conf(5)): `scontrol top` swaps the nice values of a user's jobs."""


_LIFT = ("lift", "nice_was")


class Lender:
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
        self._loans, self._seen = _read(path) or (), _stamp(path)

    @property
    def outstanding(self) -> bool:
        """Return whether any boost must still be reverted."""
        with self._lock:
            self._look()
            return any(not loan.returned for loan in self._loans)

    def lend(self, job: JobView, claim: Claim) -> int | None:
        """Return the nice value that a waiting rerun gets now; None if it stays unchanged.

        Args:
            job: The rerun, as Slurm shows it.
            claim: The cause of its last end.

        Raises:
            SlurmError: Slurm does not answer.
        """
        config = self._config()
        settings = config.partition(job.partition)
        if settings is None or config.mode != "enforce" or held(job):
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
            for loan in self._loans:  # Slurm did not answer then
                if not loan.returned and (loan.job_id, loan.restarts) == (job.job_id, job.restarts):
                    return loan.nice_lent if job.nice == loan.nice_before else None
            new = loan_for(job, claim, settings, self._loans, now_s=self._clock.now_s())
            if new is None or not self._write((*self._loans, new)):
                return None
        by = new.nice_before - new.nice_lent
        what = about(EventKind.PRIORITY_LENT, job_id=job.job_id, user_id=job.user_id, by=by)
        log.info("job %d: priority raised by %d until it starts", job.job_id, by, extra=what)
        return new.nice_lent

    def put_back(self, job_id: int) -> None:
        """Keep a boost for one more start: the Prolog requeued the rerun, so it did not run."""
        with self._lock:
            self._look()
            self._write(
                tuple(
                    replace(loan, restarts=loan.restarts + 1)
                    if loan.job_id == job_id and not loan.returned
                    else loan
                    for loan in self._loans
                )
            )

    def lifts(self) -> dict[int, int]:
        """Return by how much jobs are raised to their queue positions now, by job id."""
        with self._lock:
            self._look()
            return {loan.job_id: loan.lift for loan in self._loans if not loan.returned}

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
            of_job = [loan for loan in self._loans if loan.job_id == job.job_id and not loan.returned]
            old = of_job[0] if of_job else None
            new = raised(old, job, points, now_s=self._clock.now_s())
            if new is None or not self._write((*(loan for loan in self._loans if loan is not old), new)):
                return
        self._slurm.update(job.job_id, JobChange(nice=new.nice_lent))
        what = about(EventKind.PRIORITY_LENT, job_id=job.job_id, user_id=job.user_id, by=points)
        log.info("job %d: queue position restored, by %d points", job.job_id, points, extra=what)

    def collect(self) -> None:
        """Revert every boost whose rerun has started; where Slurm does not answer, retry next time."""
        with self._lock:
            self._look()
            open_loans = [loan for loan in self._loans if not loan.returned]
        for loan in open_loans:
            try:
                job = self._slurm.job(loan.job_id)
                if job is not None and not is_due(loan, job):
                    continue
                if job is not None and job.nice in loan.ours:
                    self._slurm.update(loan.job_id, JobChange(nice=loan.nice_before))
            except SlurmError as exc:
                what = about(EventKind.TROUBLE, job_id=loan.job_id)
                log.warning("job %d: priority boost not reverted yet: %s", loan.job_id, exc, extra=what)
                continue
            what = about(EventKind.PRIORITY_BACK, job_id=loan.job_id)
            log.info("job %d: priority boost reverted", loan.job_id, extra=what)
            self._forget(loan)

    def _look(self) -> None:
        """Read boosts written by another radd (a standby's, where both mount one folder). Call it under the lock."""
        now = _stamp(self._path)
        if now is not None and now != self._seen:
            found = _read(self._path)
            self._loans, self._seen = self._loans if found is None else found, now

    def _forget(self, ended: Loan) -> None:
        with self._lock:
            self._look()
            self._write(
                tuple(
                    replace(loan, returned=True)
                    if (loan.job_id, loan.time_s) == (ended.job_id, ended.time_s)
                    else loan
                    for loan in self._loans
                )
            )

    def _write(self, loans: tuple[Loan, ...]) -> bool:
        """Write the boosts, without those that are both old and reverted. Call it under the lock."""
        now_s = self._clock.now_s()
        kept = tuple(
            loan for loan in loans if not loan.returned or (loan.boost > 0 and now_s - loan.time_s < DAY_S)
        )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps([_as_row(loan) for loan in kept]).encode(), mode=0o600)
        except OSError as exc:
            log.warning("%s: %s; no priority is raised", self._path, exc.strerror)
            return False
        self._loans, self._seen = kept, _stamp(self._path)
        return True


def users_move_priority(config: Mapping[str, str]) -> bool:
    """Return whether users may move priority between their jobs, according to `scontrol show config`."""
    return _USER_TOP in config.get("SchedulerParameters", "").split(",")


def _as_row(loan: Loan) -> dict[str, object]:
    """Return a boost as it is stored, without empty lifts: an older release reads these."""
    return {name: value for name, value in asdict(loan).items() if name not in _LIFT or value}


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return a value that changes with each version of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _read(path: Path) -> tuple[Loan, ...] | None:
    """Return the boosts in a file; None if it cannot be read."""
    try:
        return tuple(Loan(**row) for row in json.loads(path.read_bytes()))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError) as exc:
        log.warning("%s: %s; earlier priority boosts are unknown", path, exc)
        return None
