"""Keep the queue positions of requeued jobs: turns.py computes each priority boost, and `PriorityBooster` applies it.

Each position comes with the note about the requeue, so a restarted radd finds it with the job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.logs.daemon_log import about
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.records.queue_position import Turn
from slurm_plugin.radd.priority_boosts import PriorityBooster, users_move_priority
from slurm_plugin.radd.turns import LEAST, Ageing, lifts
from slurm_plugin.slurm.control import SlurmControl, Standing

log = logging.getLogger("radd")

EVERY_S = 10.0
"""How often queue positions are checked: Slurm recomputes priorities every five minutes, and jobs that came earlier may
start at any time."""


class Keeper:
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
        self._turns: dict[int, tuple[Turn, int | None]] = {}
        self._asked: dict[int, Standing] = {}  # state before the last raise
        self._pause = Deadline(clock, 0.0)

    @property
    def busy(self) -> bool:
        """Return whether any queue position is kept."""
        with self._lock:
            return bool(self._turns)

    def take(self, job_id: int, turn: Turn, *, restart: int | None) -> None:
        """Keep a job's queue position from now on, until it starts.

        Args:
            job_id: The job.
            turn: Its queue position.
            restart: Restart count of the rerun that waits; None if unknown.
        """
        with self._lock:
            self._turns[job_id] = (turn, restart)
            self._pause = Deadline(self._clock, 0.0)

    def keep(self) -> None:
        """Raise every such waiting job to its former position, and forget those that no longer wait."""
        with self._lock:
            turns = dict(self._turns)
            if not turns or not self._pause.passed():
                return
            self._pause = Deadline(self._clock, EVERY_S)
        try:
            self._raise(turns)
        except SlurmError as exc:
            log.warning("queue positions not restored yet: %s", exc, extra=about(EventKind.TROUBLE))

    def _raise(self, turns: dict[int, tuple[Turn, int | None]]) -> None:
        waiting = {job.job_id: job for job in self._slurm.standings()}
        for job_id, (turn, restart) in turns.items():
            job, asked = waiting.get(job_id), self._asked.pop(job_id, None)
            by_hand = job is not None and heeds_no_nice(asked, job)
            if job is not None and by_hand:
                self._booster.raise_by(waiting.pop(job_id), 0)
            if by_hand or self._over(job_id, job, restart):
                with self._lock:
                    if self._turns.get(job_id) == (turn, restart):
                        del self._turns[job_id]
        here = {job_id: turns[job_id][0] for job_id in turns.keys() & waiting.keys()}
        config = self._slurm.config()
        mine = {job_id: turn for job_id, turn in here.items() if self._is_kept(waiting[job_id])}
        if not mine or users_move_priority(config):
            return
        points = lifts(
            mine,
            tuple(waiting.values()),
            self._booster.lifts(),
            Ageing.from_config(config),
            [node.partitions for node in self._slurm.nodes()],
            now_s=self._clock.now_s(),
        )
        for job_id, by in points.items():
            self._booster.raise_by(waiting[job_id], by)
            self._asked[job_id] = waiting[job_id]

    def _over(self, job_id: int, job: Standing | None, restart: int | None) -> bool:
        job = job or self._slurm.standing(job_id)
        if job is None or (restart is not None and job.restarts > restart):
            return True
        return job.state not in ("PENDING", "COMPLETING")  # just after a requeue it still completes

    def _is_kept(self, job: Standing) -> bool:
        config = self._config()
        settings = [config.partition(name) for name in job.partition.split(",")]
        return config.mode == "enforce" and any(each is not None and each.keep_turn for each in settings)


def heeds_no_nice(asked: Standing | None, now: Standing) -> bool:
    """Return whether Slurm accepted a job's new nice value but kept its priority: an admin set the priority by hand.

    `scontrol update priority=` has precedence (22.05.8, priority/basic). A single point may not show (turns.LEAST).

    Args:
        asked: The job before its nice value was last changed; None if it was not.
        now: The job now.
    """
    if asked is None:
        return False
    return abs(asked.nice - now.nice) > LEAST and now.priority == asked.priority
