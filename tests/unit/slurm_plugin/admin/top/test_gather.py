"""Querying nodes: those that answer, and every kind of one that does not."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import FakeClock

from slurm_plugin.admin.cli import main
from slurm_plugin.admin.top.command import places, port_of
from slurm_plugin.admin.top.frame import as_text, frame
from slurm_plugin.admin.top.gather import QUEUE_EVERY_S, Gatherer
from slurm_plugin.admin.top.view import View
from slurm_plugin.core.config.load import Config, TelemetryConfig
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.export.web import PORT, serve
from slurm_plugin.monitor.node_state import NodeState
from slurm_plugin.slurm.queries.queue import _COLUMNS, WaitingJob, parse_waiting

Answerer = Callable[[socket.socket], None]


@pytest.fixture
def answering() -> Iterator[Callable[[Answerer], int]]:
    """Start servers on this machine that answer each caller in some way; returns the port."""
    listeners = []

    def start(answer: Answerer) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                with caller:
                    caller.recv(1000)
                    answer(caller)

        threading.Thread(target=run, daemon=True).start()
        return int(listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def node(tmp_path: Path, *, time_s: float) -> int:
    """Start what rad-monitor serves."""
    port = free_port()
    board = serve(str(port), tmp_path)
    reading = GpuReading(
        uuid="GPU-a", index=0, name="H100", memory_total_bytes=GIB, memory_used_bytes=0, time_s=time_s
    )
    allocation = Allocation(
        job_id=7,
        user_id=os.getuid(),
        kind="shared",
        gpus=("GPU-a",),
        gpu_indices=(0,),
        booked_bytes=GIB,
        created_s=0.0,
    )
    board.show(NodeState(readings=(reading,), ledger=Ledger(allocations=(allocation,))))
    return port


def test_one_that_answers_among_those_that_do_not(tmp_path: Path, answering: Callable[[Answerer], int]):
    clock = FakeClock()
    stop = threading.Event()
    ports = {
        "good": node(tmp_path, time_s=clock.now_s()),
        "gone": free_port(),
        "other": answering(lambda caller: caller.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n")),
        "garbage": answering(lambda caller: caller.sendall(b"HTTP/1.0 200 OK\r\n\r\n{")),
        "closes": answering(lambda caller: None),
        "hangs": answering(lambda caller: bool(stop.wait(5))),
    }
    gatherer = Gatherer(
        {name: ("127.0.0.1", port) for name, port in ports.items()}, clock=clock, queue=lambda: ()
    )
    fleet = gatherer.look()
    stop.set()
    troubles = {one.name: one.trouble for one in fleet.nodes}
    assert troubles.pop("good") == ""
    assert all(troubles.values()), troubles
    assert "404" in troubles["other"]
    assert "no answer in 1 s" in troubles["hangs"]
    gone = f"set telemetry.serve in its rad.toml; nothing listens at 127.0.0.1:{ports['gone']}"
    assert troubles["gone"] == gone
    shown = as_text(frame(fleet, View(), width=120, height=20)).splitlines()
    (line,) = [line for line in shown if line.startswith("gone ")]
    assert "set telemetry.serve in its rad.toml" in line, "what to do fits on the screen"
    (job,) = [job for _, _, job in fleet.jobs()]
    assert fleet.user(job.user_id) != "" and job.job_id == 7


def test_a_monitor_that_answers_for_two_nodes_is_counted_once_and_named(tmp_path: Path):
    clock = FakeClock()
    place = ("127.0.0.1", node(tmp_path, time_s=clock.now_s()))
    gatherer = Gatherer({"n0": place, "n1": place}, clock=clock, queue=None)
    for _ in range(2):
        fleet = gatherer.look()
        assert [one.trouble for one in fleet.nodes] == ["", "the rad-monitor of n0 answers for it"]
        assert len(list(fleet.gpus())) == 1


def test_what_a_silent_node_reported_last_is_kept_and_an_old_state_is_named(tmp_path: Path):
    clock = FakeClock()
    port = node(tmp_path, time_s=clock.now_s())
    gatherer = Gatherer({"good": ("127.0.0.1", port)}, clock=clock, queue=None)
    assert gatherer.look().nodes[0].trouble == ""
    clock.sleep(60)
    assert "read 60 s ago" in gatherer.look().nodes[0].trouble
    gatherer._places["good"] = ("127.0.0.1", free_port())
    (after,) = gatherer.look().nodes
    assert after.trouble and after.status is not None


def test_the_queue_is_read_now_and_then_and_its_trouble_is_reported(tmp_path: Path):
    clock = FakeClock()
    queried_at_s: list[float] = []

    def queue() -> tuple[WaitingJob, ...]:
        queried_at_s.append(clock.now_s())
        raise SlurmError("slurmctld is away")

    gatherer = Gatherer({}, clock=clock, queue=queue)
    assert gatherer.look().queue_trouble == "slurmctld is away"
    gatherer.look()
    assert len(queried_at_s) == 1
    clock.sleep(QUEUE_EVERY_S + 1)
    gatherer.look()
    assert len(queried_at_s) == 2


def line(**values: str) -> bytes:
    return "".join(values.get(name, "N/A").ljust(width)[:width] for name, width in _COLUMNS).encode() + b"\n"


def test_the_queue_holds_jobs_that_wait_for_gpus():
    common = {
        "UserID": "1000",
        "RestartCnt": "0",
        "PriorityLong": "5",
        "Partition": "gpu",
        "Reason": "Priority",
    }
    text = line(**common, JobID="1", SubmitTime="2026-03-01T12:00:00", **{"tres-per-node": "gres:shard:12"})
    text += line(**common, JobID="2", SubmitTime="Unknown", **{"tres-per-job": "gres/gpu=2"})
    text += line(**common, JobID="3", SubmitTime="2026-03-01T12:00:00")
    text += line(**common, JobID="4", SubmitTime="Unknown", **{"tres-per-socket": "gres/gpu:1"})
    first, second, third = parse_waiting(text)
    assert third.gres == "gres/gpu:1"
    assert (first.job_id, first.gres, second.job_id, second.submit_s) == (1, "gres:shard:12", 2, None)
    assert first.submit_s is not None
    with pytest.raises(SlurmError):
        parse_waiting(b"JOBID USER\n")


def test_where_nodes_are_queried():
    assert places(("a", "b=10.0.0.5:1"), 9, found=dict) == {"a": ("a", 9), "b": ("10.0.0.5", 1)}
    assert places((), 9, found=lambda: {"x": "10.0.0.7"}) == {"x": ("10.0.0.7", 9)}, "as Slurm finds it"
    assert port_of(Config()) == PORT
    assert port_of(Config(telemetry=TelemetryConfig(serve="0.0.0.0:1234"))) == 1234
    for wrong in (("=1.2.3.4:5",), ("a=5",), ("a=b:c",), ()):
        with pytest.raises(ConfigError):
            places(wrong, 9, found=dict)


def test_one_screen_for_a_pipe_and_json_for_programs(tmp_path: Path):
    port = node(tmp_path, time_s=0.0)
    command = ["top", "--config", "/nonexistent", "--node", f"gpu1=127.0.0.1:{port}"]
    text = CliRunner().invoke(main, command)
    assert text.exit_code == 0, text.output
    assert "gpu1" in text.output and "F10" not in text.output
    reported = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert reported["nodes"][0]["status"]["gpus"][0]["jobs"][0]["job_id"] == 7
