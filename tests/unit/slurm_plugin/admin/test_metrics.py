"""Metrics of the controller."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import FakeClock

from slurm_plugin.core.config.load import Config, Paths
from slurm_plugin.core.history.site_quantiles import QuantileLimits
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.monitor.export.hook_counts import HookCounts
from slurm_plugin.slurm.queries.queue import WaitingJob

LIMITS = QuantileLimits(lowest=(0.0,), highest=(1.0,), runs=90, models=40, users=9)
telling = pytest.importorskip("slurm_plugin.admin.metrics")


def waiting(job_id: int, partition: str, submit_s: float | None) -> WaitingJob:
    return WaitingJob(
        job_id=job_id,
        user_id=1000,
        partition=partition,
        gres="gres/shard:3",
        reason="Priority",
        priority=1,
        restarts=0,
        submit_s=submit_s,
    )


def reported(metrics: object) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in metrics.collect()  # type: ignore[attr-defined]
        for sample in metric.samples
    }


def test_health_queue_and_events(tmp_path: Path):
    clock = FakeClock()
    looks = []

    def look() -> object:
        looks.append(clock.now_s())
        now_s = clock.now_s()
        return telling.ControllerState(
            time_s=now_s,
            radd_up=True,
            radd_answer_s=0.002,
            radd_leaves_jobs=False,
            undecided=4,
            waiting=[waiting(1, "a", now_s - 10), waiting(2, "a", now_s - 30), waiting(3, "b", None)],
        )

    metrics = telling.ControllerMetrics(look, HookCounts(tmp_path), clock)
    assert reported(metrics)["rad_radd_events_total", "bug"] == 0, "an alert's first increase is seen"
    HookLog(str(tmp_path), "radd", job_id=0, clock=clock).write(EventKind.SUBMITTED)
    HookLog(str(tmp_path), "prolog", job_id=0, clock=clock).write(EventKind.PLACED)
    found = reported(metrics)
    assert found["rad_radd_up",] == 1 and found["rad_radd_answer_seconds",] == 0.002
    assert found["rad_radd_events_total", "submitted"] == 1
    assert found["rad_radd_undecided_submissions_total",] == 4
    assert ("rad_radd_events_total", "placed") not in found
    assert (found["rad_queue_jobs", "a"], found["rad_queue_wait_mean_seconds", "a"]) == (2, 20)
    assert (found["rad_queue_wait_longest_seconds", "a"], found["rad_queue_jobs", "b"]) == (30, 1)
    assert len(looks) == 1, "several scrapers ask slurmctld no more often than one"
    clock.sleep(telling.FRESH_S)
    reported(metrics)
    assert len(looks) == 2


def test_a_look_from_cron_counts_what_happened_before(tmp_path: Path):
    HookLog(str(tmp_path), "radd", job_id=0, clock=FakeClock()).write(EventKind.BUG)
    config = Config(paths=Paths(log=str(tmp_path), socket=str(tmp_path / "none")))
    counted = {
        once: telling.as_text(telling.registry_of(config, FakeClock(), once=once)) for once in (True, False)
    }
    assert 'rad_radd_events_total{event="bug"} 1.0' in counted[True]
    assert 'rad_radd_events_total{event="bug"} 0.0' in counted[False]


def test_a_user_who_names_partitions_in_every_order_makes_no_new_series(tmp_path: Path):
    seen = telling.ControllerState(
        time_s=100.0,
        radd_up=True,
        radd_answer_s=0.002,
        radd_leaves_jobs=False,
        waiting=[waiting(1, "a,b", 90.0), waiting(2, "b,a", 80.0), waiting(3, "a,a,b", 70.0)],
    )
    found = reported(telling.ControllerMetrics(lambda: seen, HookCounts(tmp_path), FakeClock()))
    assert {key: value for key, value in found.items() if key[0] == "rad_queue_jobs"} == {
        ("rad_queue_jobs", "a"): 3,
        ("rad_queue_jobs", "b"): 3,
    }


def test_a_controller_where_nothing_answers(tmp_path: Path):
    clock = FakeClock()
    seen = telling.ControllerState(
        time_s=0.0, radd_up=False, radd_answer_s=None, radd_leaves_jobs=False, waiting=None
    )
    found = reported(telling.ControllerMetrics(lambda: seen, HookCounts(tmp_path), clock))
    assert found["rad_radd_up",] == 0 and found["rad_queue_known",] == 0
    assert ("rad_radd_answer_seconds",) not in found
    assert ("rad_radd_undecided_submissions_total",) not in found, "a count that is not known is not 0"


@pytest.fixture
def radd(tmp_path: Path) -> Iterator[Path]:
    """Something that answers as radd does."""
    path = tmp_path / "radd.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def answer() -> None:
        caller, _ = listener.accept()
        with caller:
            caller.recv(1000)
            answer = {"v": 1, "pong": True, "leaves_jobs": "no shards", "undecided": 3, "undecided_age_s": 9}
            caller.sendall(json.dumps(answer).encode() + b"\n")

    threading.Thread(target=answer, daemon=True).start()
    yield path
    listener.close()


def test_radd_is_queried_over_its_socket(radd: Path):
    from slurm_plugin.admin.ask_radd import ask_radd

    answer = ask_radd(str(radd))
    assert isinstance(answer, dict) and answer["leaves_jobs"] == "no shards"
    assert "no answer" in str(ask_radd(str(radd.with_name("none"))))


def test_what_radd_did_not_decide_is_looked_up(radd: Path, tmp_path: Path):
    seen = telling.look(Config(paths=Paths(socket=str(radd), state=str(tmp_path))), FakeClock())
    assert (seen.undecided, seen.radd_leaves_jobs) == (3, True)
