"""Query every node's rad-monitor and Slurm's queue; the only part of `rad top` with outside connections.

One way: rad-monitor -> HTTP -> here. All nodes are queried at once, each with a time-out that keeps the screen
responsive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from slurm_plugin.admin.top.fleet import Fleet, NodeAnswer
from slurm_plugin.admin.users import name_of
from slurm_plugin.core.clock import Clock
from slurm_plugin.core.errors import SlurmError, WireError
from slurm_plugin.core.text import one_line
from slurm_plugin.core.units import MIB
from slurm_plugin.monitor.export.status import NodeStatus
from slurm_plugin.monitor.export.status_codec import from_text
from slurm_plugin.monitor.window import STALE_AFTER_S
from slurm_plugin.slurm.queries.queue import WaitingJob

ANSWER_S = 1.0
"""A node that takes longer is shown as silent, with its last answer."""

QUEUE_EVERY_S = 10.0
"""Interval of squeue, which puts load on slurmctld."""

_MOST_BYTES = 4 * MIB
_AT_ONCE = 128

MonitorAddress = tuple[str, int]


class Gatherer:
    """Collects a Fleet repeatedly; remembers each node's last answer."""

    def __init__(
        self,
        places: Mapping[str, MonitorAddress],
        *,
        clock: Clock,
        queue: Callable[[], tuple[WaitingJob, ...]] | None,
    ) -> None:
        """Set up.

        Args:
            places: Host and port of each node's rad-monitor, by Slurm's name of the node.
            clock: Time.
            queue: Queries Slurm for waiting jobs; None leaves the queue out.
        """
        self._places, self._clock, self._queue = dict(places), clock, queue
        self._nodes = {name: NodeAnswer(name=name) for name in places}
        self._users: dict[int, str] = {}
        self._waiting: tuple[WaitingJob, ...] = ()
        self._queue_trouble = ""
        self._queue_s: float | None = None
        # One for all samples: none waits for a name that another is still resolving.
        self._loop = asyncio.new_event_loop()

    def look(self) -> Fleet:
        """Query all, wait for the answers that arrive in time, and return everything."""
        for name, answer in self._loop.run_until_complete(self._ask_all()).items():
            known = self._nodes[name]
            if isinstance(answer, NodeStatus):
                self._nodes[name] = NodeAnswer(name=name, status=answer, trouble=self._age(answer))
            else:
                self._nodes[name] = replace(known, trouble=answer)
        self._name_twins()
        self._ask_queue()
        fleet = Fleet(
            time_s=self._clock.now_s(),
            nodes=tuple(self._nodes.values()),
            waiting=self._waiting,
            queue_trouble=self._queue_trouble,
        )
        ids = {job.user_id for _, _, job in fleet.jobs()} | {job.user_id for job in fleet.waiting}
        for user_id in ids - self._users.keys():
            self._users[user_id] = name_of(user_id)
        return replace(fleet, users=self._users)

    def _name_twins(self) -> None:
        """Count each GPU once: a rad-monitor that answers for a second node is named there."""
        seen: dict[tuple[str, ...], str] = {}
        for name, node in self._nodes.items():
            gpus = tuple(gpu.uuid for gpu in node.status.gpus) if node.status else ()
            first = seen.setdefault(gpus, name) if gpus else name
            if first != name:
                self._nodes[name] = NodeAnswer(
                    name=name, trouble=f"the rad-monitor of {first} answers for it"
                )

    def _age(self, status: NodeStatus) -> str:
        age_s = self._clock.now_s() - status.time_s
        return "" if abs(age_s) <= STALE_AFTER_S else f"its GPUs were read {age_s:.0f} s ago"

    def _ask_queue(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._queue is None or (self._queue_s is not None and now_s - self._queue_s < QUEUE_EVERY_S):
            return
        self._queue_s = now_s
        try:
            self._waiting, self._queue_trouble = self._queue(), ""
        except SlurmError as exc:
            self._queue_trouble = one_line(str(exc), 200)

    async def _ask_all(self) -> dict[str, NodeStatus | str]:
        slots = asyncio.Semaphore(_AT_ONCE)
        names = list(self._places)
        answers = await asyncio.gather(*(_ask(self._places[name], slots) for name in names))
        return dict(zip(names, answers, strict=True))


async def _ask(place: MonitorAddress, slots: asyncio.Semaphore) -> NodeStatus | str:
    """Return a node's answer, or why there is none."""
    async with slots:
        try:
            return from_text(await asyncio.wait_for(_get(*place), ANSWER_S))
        except asyncio.TimeoutError:  # not TimeoutError on Python 3.10
            return f"no answer in {ANSWER_S:g} s"
        except ConnectionRefusedError:
            return f"set telemetry.serve in its rad.toml; nothing listens at {place[0]}:{place[1]}"
        except (OSError, WireError) as exc:
            return one_line(getattr(exc, "strerror", None) or str(exc), 120)


async def _get(host: str, port: int) -> bytes:
    """Return the body of `GET /status`."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET /status HTTP/1.0\r\nHost: {host}\r\n\r\n".encode("ascii", "replace"))
        answer = bytearray()
        while len(answer) < _MOST_BYTES and (part := await reader.read(1 << 16)):
            answer += part
    finally:
        writer.close()
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    first = head.partition(b"\r\n")[0]
    if b" 200 " not in first:
        raise WireError(f"it answers {first.decode('ascii', 'replace')!r:.60}")
    return body
