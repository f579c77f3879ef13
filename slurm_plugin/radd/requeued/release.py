"""Start requeued jobs: clear the delay that Slurm puts on every requeue, or set the one that RAD wants.

Slurm gives a requeued job a start time two minutes ahead, and overwrites one that is set while the job is still
completing. So the Epilog requeues it and notes that in the AdminComment, and radd sets the start time once the job is
pending.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.comments.admin_comment import Note, read_signed
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.logs.daemon_log import about
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.process.background import in_background
from slurm_plugin.radd.requeued.boost_records import BoostCause
from slurm_plugin.radd.requeued.position_keeper import PositionKeeper
from slurm_plugin.radd.requeued.priority_boosts import PriorityBooster
from slurm_plugin.slurm.control import JobChange, SlurmControl, put_off

log = logging.getLogger("radd")

PATIENCE_S = 600.0
"""A job may be completing for as long as its Epilogs and file systems take; after this it keeps Slurm's delay."""
YOUNG_S = 30.0
"""Most requeues are complete by then. Until then radd polls often, and a job that still runs may yet be requeued."""
MOST_SCANNED = 200
"""Jobs that radd queries at its start; where many are preempted, thousands have been restarted."""
POLL_YOUNG_S = 0.5
POLL_OLD_S = 5.0
POLL_IDLE_S = 30.0
"""Another radd may have given a boost and be gone: a standby's reads the folder that both mount."""
POLL_BOOSTED_S = 2.0
"""A boost is reverted this soon after the rerun starts."""


@dataclass(frozen=True, slots=True)
class _Errand:
    start_in_s: int
    restart: int | None
    young: Deadline
    deadline: Deadline
    cause: BoostCause | None = None


class Releaser:
    """A dedicated thread, because a request must never wait for Slurm."""

    def __init__(
        self,
        slurm: SlurmControl,
        clock: Clock,
        booster: PriorityBooster,
        keeper: PositionKeeper,
        *,
        key: Callable[[], bytes],
    ) -> None:
        """Start with no errands.

        Args:
            slurm: Slurm.
            clock: Time.
            booster: Gives priority boosts.
            keeper: Keeps queue positions.
            key: Returns the cluster's key as it is in force.
        """
        self._key = key
        self._slurm = slurm
        self._booster, self._keeper = booster, keeper
        self._clock = clock
        self._errands: dict[int, _Errand] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._scanned = False
        """Whether earlier recovered jobs were searched; Slurm may not answer yet when radd starts."""

    def hear(self, job_id: int, note: Note, *, profile_key: str | None = None) -> None:
        """Add an errand; it replaces one of the same job.

        Args:
            job_id: The job.
            note: The note that a hook wrote about it and signed.
            profile_key: The job's model, from its booking; None if unknown.
        """
        if note.start_in_s is None or note.event == "ended":
            return
        if note.event == "requeued":
            self._booster.follow_requeue(job_id)
        self._keep_position(job_id, note)
        cause = None if note.fault is None else BoostCause(fault=note.fault, profile_key=profile_key)
        with self._changed:
            self._errands[job_id] = _Errand(
                note.start_in_s,
                note.restart,
                Deadline(self._clock, YOUNG_S),
                Deadline(self._clock, PATIENCE_S),
                cause,
            )
            self._changed.notify()

    def start(self) -> None:
        """Work in the background, beginning with jobs left when radd last stopped."""
        in_background("radd-recover", self._work, log=log)

    def stop(self) -> None:
        """Accept no more errands."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def scan(self) -> None:
        """Add recovered jobs that still wait for their delay to end.

        Raises:
            SlurmError: Slurm does not answer.
        """
        now_s = self._clock.now_s()
        again = [job for job in self._slurm.standings() if job.restarts]
        again.sort(key=lambda job: job.reason != "BeginTime")  # those waiting for their delay first
        for job in again[:MOST_SCANNED]:
            seen = self._slurm.job(job.job_id)  # lists of jobs carry no AdminComment
            if seen is None or put_off(seen, now_s=now_s):
                continue
            note = read_signed(seen.admin_comment, job_id=seen.job_id, user_id=seen.user_id, key=self._key())
            if note is None or note.restart != job.restarts:
                continue
            self._keep_position(job.job_id, note)
            if note.event == "recovered" and job.reason == "BeginTime":
                self.hear(job.job_id, note)

    def run_errands(self) -> None:
        """Try every errand once, and forget those that are complete or pointless."""
        with self._changed:
            errands = dict(self._errands)
        for job_id, errand in errands.items():
            over = True  # also after an error: it must not block the others
            try:
                over = self._done(job_id, errand) or errand.deadline.passed()
            finally:
                with self._changed:
                    if over and self._errands.get(job_id) is errand:
                        del self._errands[job_id]

    def _done(self, job_id: int, errand: _Errand) -> bool:
        try:
            job = self._slurm.job(job_id)
            if job is None or (job.state == "RUNNING" and errand.young.passed()):
                return True
            if errand.restart is not None and job.restarts > errand.restart:
                return True  # that rerun is over; this one has another cause (preempted, requeued)
            if job.state != "PENDING":
                return False  # still completing
            boosted = None
            if errand.cause is not None:
                boosted = self._booster.boost(job, errand.cause)
            if errand.start_in_s:
                change = JobChange(start_in_s=errand.start_in_s, nice=boosted)
            else:
                change = JobChange(start_now=True, nice=boosted)
            self._slurm.update(job_id, change)
        except SlurmError as exc:
            log.warning(
                "job %d: start time not set yet: %s",
                job_id,
                exc,
                extra=about(EventKind.TROUBLE, job_id=job_id),
            )
            return False
        what = about(EventKind.MAY_START, job_id=job_id, user_id=job.user_id, start_in_s=errand.start_in_s)
        log.info("job %d: may start in %d s", job_id, errand.start_in_s, extra=what)
        return True

    def _work(self) -> bool:
        self._scan_once()
        self._booster.collect()
        self.run_errands()
        self._keeper.keep()
        with self._changed:
            if self._scanned and not self._errands and not self._boosted():
                self._changed.wait_for(lambda: self._stopping or self._errands, timeout=POLL_IDLE_S)
            else:
                self._changed.wait_for(lambda: self._stopping, timeout=self._pause_s())
        return not self._stopping

    def _keep_position(self, job_id: int, note: Note) -> None:
        if note.position is not None:
            self._keeper.take(job_id, note.position, restart=note.restart)

    def _boosted(self) -> bool:
        return self._keeper.busy or self._booster.outstanding

    def _pause_s(self) -> float:
        young = any(not errand.young.passed() for errand in self._errands.values())
        if young:
            return POLL_YOUNG_S
        return POLL_BOOSTED_S if self._boosted() else POLL_OLD_S

    def _scan_once(self) -> None:
        if self._scanned:
            return
        self._scanned = True  # also after an error: it must not block errands
        try:
            self.scan()
        except SlurmError as exc:
            self._scanned = False
            log.warning("requeued jobs not looked for yet: %s", exc)
