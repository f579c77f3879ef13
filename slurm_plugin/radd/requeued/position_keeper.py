"""Keep the queue positions of requeued jobs, by the priority boosts that queue_positions.py computes.

Each position comes with the note about the requeue, so a restarted radd finds it with the job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.logs.daemon_log import about
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.records.queue_position import QueuePosition
from slurm_plugin.radd.requeued.priority_boosts import PriorityBooster, users_move_priority
from slurm_plugin.radd.requeued.queue_positions import LEAST, Ageing, restoring_boosts
from slurm_plugin.slurm.control import SlurmControl, Standing

log = logging.getLogger("radd")

EVERY_S = 10.0
"""How often queue positions are checked: Slurm recomputes priorities every five minutes, and jobs that came earlier may
start at any time."""


class _Kept(NamedTuple):
    """A queue position that is kept.

    Attributes:
        position: The position.
        restart: Restart count of the rerun that waits; None if unknown.
    """

    position: QueuePosition
    restart: int | None


class PositionKeeper:
    """Queue positions of all jobs that RAD requeued and that wait. Safe to use from several threads."""

    def __init__(
        self, slurm: SlurmControl, clock: Clock, booster: PriorityBooster, config: Callable[[], Config]
    ) -> None:
        """Start empty.

        Args:
            slurm: Slurm.
            clock: Time.
            booster: Raises jobs, and reverts it when they start.
            config: Returns rad.toml as it is in force.
        """
        self._slurm, self._clock, self._booster, self._config = slurm, clock, booster, config
        self._lock = threading.Lock()
        self._kept: dict[int, _Kept] = {}
        self._before_raise: dict[int, Standing] = {}
        self._pause = Deadline(clock, 0.0)

    @property
    def busy(self) -> bool:
        """Return whether any queue position is kept."""
        with self._lock:
            return bool(self._kept)

    def take(self, job_id: int, position: QueuePosition, *, restart: int | None) -> None:
        """Keep a job's queue position from now on, until it starts.

        Args:
            job_id: The job.
            position: Its queue position.
            restart: Restart count of the rerun that waits; None if unknown.
        """
        with self._lock:
            self._kept[job_id] = _Kept(position, restart)
            self._pause = Deadline(self._clock, 0.0)

    def keep(self) -> None:
        """Raise every such waiting job to its former position, and forget those that no longer wait."""
        with self._lock:
            kept = dict(self._kept)
            if not kept or not self._pause.passed():
                return
            self._pause = Deadline(self._clock, EVERY_S)
        try:
            waiting = {job.job_id: job for job in self._slurm.standings()}
            for job_id, one in tuple(kept.items()):
                if self._is_over(job_id, one, waiting):
                    del kept[job_id]
                    self._forget(job_id, one)
            self._restore(
                {job_id: one.position for job_id, one in kept.items() if job_id in waiting}, waiting
            )
        except SlurmError as exc:
            log.warning("queue positions not restored yet: %s", exc, extra=about(EventKind.TROUBLE))

    def _is_over(self, job_id: int, kept: _Kept, waiting: dict[int, Standing]) -> bool:
        """Return whether a position need not be kept any more; remove a job with an admin's priority from `waiting`."""
        job, before = waiting.get(job_id), self._before_raise.pop(job_id, None)
        if job is not None and heeds_no_nice(before, job):
            self._booster.raise_by(waiting.pop(job_id), 0)
            return True
        job = job or self._slurm.standing(job_id)
        return job is None or has_started(job, kept.restart)

    def _forget(self, job_id: int, kept: _Kept) -> None:
        with self._lock:
            if self._kept.get(job_id) == kept:  # and not a later requeue of the job
                del self._kept[job_id]

    def _restore(self, positions: dict[int, QueuePosition], waiting: dict[int, Standing]) -> None:
        """Raise each of these waiting jobs to its position."""
        config = self._slurm.config()
        allowed = {job_id: where for job_id, where in positions.items() if self._is_kept(waiting[job_id])}
        if not allowed or users_move_priority(config):
            return
        boosts = restoring_boosts(
            allowed,
            tuple(waiting.values()),
            self._booster.position_boosts(),
            Ageing.from_config(config),
            [node.partitions for node in self._slurm.nodes()],
            now_s=self._clock.now_s(),
        )
        for job_id, points in boosts.items():
            self._booster.raise_by(waiting[job_id], points)
            self._before_raise[job_id] = waiting[job_id]

    def _is_kept(self, job: Standing) -> bool:
        config = self._config()
        settings = [config.partition(name) for name in job.partition.split(",")]
        return config.mode == "enforce" and any(
            each is not None and each.keep_queue_position for each in settings
        )


def has_started(job: Standing, restart: int | None) -> bool:
    """Return whether a requeued job no longer waits for the rerun that its position is for.

    Args:
        job: The job.
        restart: Restart count of that rerun; None if unknown.
    """
    if restart is not None and job.restarts > restart:
        return True
    return job.state not in ("PENDING", "COMPLETING")  # just after a requeue it still completes


def heeds_no_nice(before: Standing | None, now: Standing) -> bool:
    """Return whether Slurm accepted a job's new nice value but kept its priority: an admin set the priority by hand.

    `scontrol update priority=` has precedence (22.05.8, priority/basic). A single point may not show (LEAST).

    Args:
        before: The job before its nice value was last changed; None if it was not.
        now: The job now.
    """
    if before is None:
        return False
    return abs(before.nice - now.nice) > LEAST and now.priority == before.priority
