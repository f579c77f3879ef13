"""`rad metrics`: the controller's metrics for Prometheus: radd's health, and jobs that wait for GPUs.

It queries radd over its socket as job_submit.lua does, and Slurm as any user may. radd itself serves no metrics,
because submissions wait for it. Only this file and monitor/export/metrics.py import prometheus-client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slurm_plugin.admin.ask_radd import ask_radd
from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.monitor.export.hook_counts import HookCounts
from slurm_plugin.slurm.queries.queue import WaitingJob, waiting_jobs

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

FRESH_S = 15.0
"""Results this recent are served again, so that several scrapers query slurmctld no more often than one."""

_FROM_ZERO = (EventKind.SUBMITTED, EventKind.TROUBLE, EventKind.BUG)
"""Exported as 0 before they first happen: Prometheus' increase() does not see a counter's first value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """State of the controller at one moment.

    Attributes:
        time_s: When, seconds since the epoch.
        radd_up: Whether radd answers.
        radd_answer_s: How long its answer took; None if there was none.
        radd_leaves_jobs: Whether it passes every job through unchanged because a Slurm setting prevents sharing.
        undecided: Submissions without a decision, as reported to radd since its start; None if unknown.
        waiting: Jobs that wait for GPUs; None if Slurm did not report them.
    """

    time_s: float
    radd_up: bool
    radd_answer_s: float | None
    radd_leaves_jobs: bool
    waiting: Sequence[WaitingJob] | None
    undecided: int | None = None


def look(config: Config, clock: Clock) -> ControllerState:
    """Query radd and Slurm.

    Args:
        config: rad.toml.
        clock: Time.
    """
    start_s = clock.monotonic_s()
    answer = ask_radd(config.paths.socket)
    took_s = clock.monotonic_s() - start_s
    up = isinstance(answer, dict)
    undecided = answer.get("undecided") if isinstance(answer, dict) else None
    try:
        waiting = waiting_jobs(slurm_conf=config.paths.slurm_conf)
    except SlurmError:
        waiting = None
    return ControllerState(
        time_s=clock.now_s(),
        radd_up=up,
        radd_answer_s=took_s if up else None,
        radd_leaves_jobs=isinstance(answer, dict) and bool(answer.get("leaves_jobs")),
        waiting=waiting,
        undecided=undecided if isinstance(undecided, int) else None,
    )


class ControllerMetrics(Collector):
    """Prometheus collector of the controller's state."""

    def __init__(self, look: Callable[[], ControllerState], counts: HookCounts, clock: Clock) -> None:
        """Set up the collector.

        Args:
            look: Queries radd and Slurm.
            counts: Counts of radd's actions, by event.
            clock: Time.
        """
        self._look, self._counts, self._clock = look, counts, clock
        self._lock = Lock()
        self._seen: ControllerState | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        with self._lock:
            if self._seen is None or not 0 <= self._clock.now_s() - self._seen.time_s < FRESH_S:
                self._seen = self._look()
            seen = self._seen
            self._counts.update()
        yield from _of_radd(seen)
        events = CounterMetricFamily(
            "rad_radd_events", "Decisions and other events of radd", labels=["event"]
        )
        found = {kind.value: 0 for kind in _FROM_ZERO}
        found |= {event: count for (hook, event, _), count in self._counts.events.items() if hook == "radd"}
        for event, count in sorted(found.items()):
            events.add_metric([event], count)
        yield events
        yield from _of_queue(seen)


def _of_radd(seen: ControllerState) -> Iterator[Metric]:
    yield GaugeMetricFamily("rad_radd_up", "1 if radd answers", value=int(seen.radd_up))
    took = GaugeMetricFamily("rad_radd_answer_seconds", "How long radd took to answer a ping")
    if seen.radd_answer_s is not None:
        took.add_metric([], seen.radd_answer_s)
    yield took
    missed = CounterMetricFamily(
        "rad_radd_undecided_submissions", "Submissions without a decision, as reported since radd started"
    )
    if seen.undecided is not None:
        missed.add_metric([], seen.undecided)
    yield missed
    text = "1 if Slurm's settings make radd leave every job unchanged"
    yield GaugeMetricFamily("rad_radd_leaves_jobs", text, value=int(seen.radd_leaves_jobs))


def _of_queue(seen: ControllerState) -> Iterator[Metric]:
    known = "1 if Slurm reported the queue"
    yield GaugeMetricFamily("rad_queue_known", known, value=int(seen.waiting is not None))
    jobs = GaugeMetricFamily(
        "rad_queue_jobs", "Jobs that wait for GPUs, in each of their partitions", labels=["partition"]
    )
    mean = GaugeMetricFamily(
        "rad_queue_wait_mean_seconds", "How long they have waited by now, mean", labels=["partition"]
    )
    longest = GaugeMetricFamily(
        "rad_queue_wait_longest_seconds", "How long the first has waited", labels=["partition"]
    )
    waits: dict[str, list[float]] = {}
    for job in seen.waiting or ():
        waited_s = max(0.0, seen.time_s - (job.submit_s or seen.time_s))
        for partition in set(job.partition.split(",")):  # users may name several: no label is user input
            waits.setdefault(partition, []).append(waited_s)
    for partition, all_s in sorted(waits.items()):
        jobs.add_metric([partition], len(all_s))
        mean.add_metric([partition], sum(all_s) / len(all_s))
        longest.add_metric([partition], max(all_s))
    yield from (jobs, mean, longest)


def registry_of(config: Config, clock: Clock, *, once: bool = False) -> CollectorRegistry:
    """Return the registry of the controller's metrics.

    Args:
        config: rad.toml.
        clock: Time.
        once: The metrics are read only once: earlier events count.
    """
    registry = CollectorRegistry()
    counts = HookCounts(Path(config.paths.log), from_end=not once)
    registry.register(ControllerMetrics(lambda: look(config, clock), counts, clock))
    return registry


def app_of(registry: CollectorRegistry) -> WSGIApplication:
    """Return the WSGI app that answers a scrape."""
    return make_wsgi_app(registry)


def as_text(registry: CollectorRegistry) -> str:
    """Return the metrics as text, for node_exporter's folder of text files."""
    return generate_latest(registry).decode()
