"""Stand-ins that several tests share."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.comments.admin_comment import Note, signed_note
from slurm_plugin.core.config.load import parse_config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.radd.requeued.position_keeper import PositionKeeper
from slurm_plugin.radd.requeued.priority_boosts import PriorityBooster
from slurm_plugin.slurm.control import JobChange, JobView, NodeView, SlurmControl, Standing
from slurm_plugin.slurm.versions import requeue_delay_s

KEY = bytes(32)
"""The cluster's key."""


def signed(note: Note, *, job_id: int = 7, user_id: int = 1000) -> str:
    """Return a note as a hook of this cluster signs it; its restart is 1 where it names none."""
    note = note if note.restart is not None else replace(note, restart=1)
    return signed_note(note, job_id=job_id, user_id=user_id, key=KEY)


def no_boosts(slurm: SlurmControl, clock: Clock) -> tuple[PriorityBooster, PositionKeeper]:
    """Return what gives priority boosts, for a site that shares no partition and cannot store any."""
    config = parse_config({}, origin="rad.toml")
    booster = PriorityBooster(Path("/dev/null/boosts.json"), slurm, clock, lambda: config)
    return booster, PositionKeeper(slurm, clock, booster, lambda: config)


class FakeClock:
    """Time that passes only in a sleep.

    Attributes:
        time_s: Seconds since boot.
        ahead_s: How much further the wall clock is; an admin or NTP may set it.
    """

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self.time_s = now_s
        self.ahead_s = 0.0
        self.slept: list[float] = []

    def now_s(self) -> float:
        return self.time_s + self.ahead_s

    def monotonic_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        self.time_s += duration_s


class FakeSlurm:
    """A SlurmControl that holds its jobs in memory, counts questions, remembers changes and may stop answering.

    Attributes:
        views: What Slurm says of each job, by id.
        reported: What it was reported, in order: (job id, the change, or "requeue").
        queries: How many queries it answered.
        answers: Whether it answers at all.
        failing: How many further questions fail.
        places: Where jobs stand in the queue, by id.
    """

    def __init__(self, *jobs: JobView, version: tuple[int, int, int] = (22, 5, 8), **config: str) -> None:
        self.views = {job.job_id: job for job in jobs}
        self.reported: list[tuple[int, JobChange | str]] = []
        self.queries = 0
        self.answers = True
        self.failing = 0
        self._version, self._config = version, config
        self.places: dict[int, Standing] = {}
        self.nodes_by_name: dict[str, NodeView] = {}

    def version(self) -> tuple[int, int, int]:
        return self._version

    def config(self) -> dict[str, str]:
        return dict(self._config)

    def nodes(self) -> tuple[NodeView, ...]:
        return tuple(self.nodes_by_name.values())

    def standing(self, job_id: int) -> Standing | None:
        self._answer()
        return self.places.get(job_id)

    def standings(self) -> tuple[Standing, ...]:
        self._answer()
        views = {
            view.job_id: Standing(
                job_id=view.job_id,
                user_id=view.user_id,
                state=view.state,
                reason=view.reason,
                priority=view.priority,
                restarts=view.restarts,
                submitted_s=0,
            )
            for view in self.views.values()
        }
        return tuple(each for each in (views | self.places).values() if each.state == "PENDING")

    def node(self, name: str) -> NodeView | None:
        self._answer()
        return self.nodes_by_name.get(name)

    def job(self, job_id: int) -> JobView | None:
        self._answer()
        return self.views.get(job_id)

    def jobs(self, *, node: str | None = None, states: tuple[str, ...] = ()) -> tuple[JobView, ...]:
        self._answer()
        return tuple(
            view
            for view in self.views.values()
            if (not states or view.state in states) and (not view.node or node in (None, view.node))
        )

    def given(self, job_id: int) -> str:
        self._answer()
        view = self.views.get(job_id)
        if view is None:
            raise SlurmError("Invalid job id specified")
        return view.gres

    def requeue_delay_s(self) -> int:
        return requeue_delay_s(self._version, self._config.get("AuthInfo", ""))

    def requeue(self, job_id: int) -> None:
        self._answer()
        view = self.views.get(job_id)
        if view is None:
            raise SlurmError("Invalid job id specified")
        self.reported.append((job_id, "requeue"))
        self.views[job_id] = replace(view, restarts=view.restarts + 1)

    def requeue_soon(self, job_id: int) -> None:
        self.requeue(job_id)

    def update(self, job_id: int, change: JobChange) -> None:
        self._answer()
        self.reported.append((job_id, change))

    def _answer(self) -> None:
        self.queries += 1
        if self.failing:
            self.failing -= 1
            raise SlurmError("slurmctld does not answer")
        if not self.answers:
            raise SlurmError("Unable to contact slurm controller")


def hangs_for_good() -> NoReturn:
    """Hang as in a call that no signal interrupts but SIGKILL."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(60)
