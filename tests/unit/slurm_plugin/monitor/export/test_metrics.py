"""Metrics, and what is counted from the hooks' logs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from fakes import FakeClock

from slurm_plugin.core.errors import ConfigError, WireError
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.logs.events import Entry, EventKind, LogEvent, to_line
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.core.records.gpu import GpuCounters, GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.monitor.export import web
from slurm_plugin.monitor.export.board import Board
from slurm_plugin.monitor.export.hook_counts import HookCounts
from slurm_plugin.monitor.export.status_codec import from_text
from slurm_plugin.monitor.export.web import serve
from slurm_plugin.monitor.node_state import NodeState
from slurm_plugin.monitor.window import JobUsage
from tests.timing import within

GIB = 2**30
READING = GpuReading(
    uuid="GPU-a",
    index=0,
    name="H100",
    memory_total_bytes=100 * GIB,
    memory_used_bytes=30 * GIB,
    time_s=0.0,
    smact=0.75,
    smact_source="nvml-gpm",
    processes=(GpuProcess(pid=1, memory_bytes=10 * GIB), GpuProcess(pid=2, memory_bytes=20 * GIB)),
    counters=GpuCounters(energy_j=5.0, power_w=300.0),
)
ALLOCATION = Allocation(
    job_id=7,
    user_id=1000,
    kind="shared",
    gpus=("GPU-a",),
    gpu_indices=(0,),
    booked_bytes=12 * GIB,
    created_s=0.0,
    estimate_bytes=11 * GIB,
)


@pytest.fixture
def served(tmp_path: Path) -> tuple[Board, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    board = serve(str(port), tmp_path)
    usage = JobUsage(job_id=7, first_s=0, last_s=1, peak_bytes=11 * GIB, mean_smact=0.5)
    board.show(
        NodeState(
            readings=(READING,), usages={7: usage}, owners={1: 7}, ledger=Ledger(allocations=(ALLOCATION,))
        )
    )
    return board, f"http://127.0.0.1:{port}"


def page_at(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=within(10)) as answer:
        return answer.read()


def test_owners_booking_and_use_are_shown_side_by_side(served: tuple[Board, str]):
    pytest.importorskip("prometheus_client")
    lines = page_at(f"{served[1]}/metrics").decode().splitlines()
    host = os.uname().nodename
    job = f'{{Hostname="{host}",UUID="GPU-a",gpu="0",jobid="7",userid="1000"}}'
    gpu = f'Hostname="{host}",UUID="GPU-a",gpu="0",'
    reported = {}
    for line in lines:
        if line.startswith("rad_"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
            reported[f"{name}{{{','.join(sorted((labels or '').split(',')))}}}"] = value
    assert float(reported[f"rad_job_memory_booked_bytes{job}"]) == 12 * GIB
    assert float(reported[f"rad_job_memory_estimate_bytes{job}"]) == 11 * GIB
    assert float(reported[f"rad_job_memory_used_bytes{job}"]) == 10 * GIB
    assert float(reported[f"rad_job_memory_peak_bytes{job}"]) == 11 * GIB
    assert float(reported[f"rad_job_smact_ratio{job}"]) == 0.5
    physical_gpu = f'{{{gpu}modelName="H100"}}'
    assert float(reported[f"rad_gpu_memory_unmanaged_bytes{physical_gpu}"]) == 20 * GIB
    assert float(reported[f"rad_gpu_memory_booked_bytes{physical_gpu}"]) == 12 * GIB
    assert float(reported[f"rad_gpu_smact_ratio{physical_gpu}"]) == 0.75
    assert f"rad_gpu_smocc_ratio{physical_gpu}" not in reported
    assert reported[f'rad_gpu_smact_source{{{gpu}modelName="H100",source="nvml-gpm"}}'] == "1.0"
    assert reported[f'rad_gpu_jobs{{{gpu}kind="shared",modelName="H100"}}'] == "1.0"
    assert reported[f'rad_gpu_jobs{{{gpu}kind="whole",modelName="H100"}}'] == "0.0"


def test_counts_name_their_last_job_as_an_exemplar_in_openmetrics_alone(
    served: tuple[Board, str], tmp_path: Path
):
    pytest.importorskip("prometheus_client")
    page_at(f"{served[1]}/metrics")
    for job_id in (11, 12):
        log = HookLog(str(tmp_path), "epilog", job_id=job_id, clock=FakeClock())
        log.write(EventKind.GPU_OOM, "peak 3.8 GiB")
    wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    request = urllib.request.Request(f"{served[1]}/metrics", headers=wanted)
    with urllib.request.urlopen(request, timeout=within(10)) as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [each for each in lines if 'event="gpu-oom"' in each]
    assert re.search(r'\} 2\.0 # \{jobid="12"\} 1\.0 \d+', line), line
    assert lines[-1] == "# EOF"
    assert b'jobid="12"' not in page_at(f"{served[1]}/metrics")


CAMEL_CASE = "label names should be written in 'snake_case' not 'camelCase'"
"""Hostname, UUID and modelName are labels of NVIDIA's dcgm-exporter, with which these metrics are joined."""


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_finds_nothing_but_labels_of_dcgm_exporter(served: tuple[Board, str]):
    pytest.importorskip("prometheus_client")
    text = page_at(f"{served[1]}/metrics")
    assert b"rad_gpu_smact_ratio" in text
    argv = ["promtool", "check", "metrics"]
    done = subprocess.run(argv, input=text, capture_output=True, timeout=within(60), check=False)
    lines = [line for line in done.stderr.decode().splitlines() if line.strip()]
    assert [line for line in lines if not line.endswith(CAMEL_CASE)] == []


def test_rad_top_shows_the_same(served: tuple[Board, str], tmp_path: Path):
    board, address = served
    log = HookLog(str(tmp_path), "epilog", job_id=3, clock=FakeClock())
    log.write(EventKind.GPU_OOM, "CUDA out of memory, said the job")
    log.write(EventKind.OK)
    text = page_at(f"{address}/status")
    assert b"said the job" not in text, "what a job printed is its owner's"
    assert from_text(text) == board.status()
    (gpu,) = board.status().gpus
    assert (gpu.booked_bytes, gpu.unmanaged_bytes, gpu.jobs[0].used_bytes) == (12 * GIB, 20 * GIB, 10 * GIB)
    assert [(one.job_id, one.event) for one in board.status().happened] == [(3, "gpu-oom")]


def test_any_other_path_is_not_there(served: tuple[Board, str]):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        page_at(f"{served[1]}/other")


@pytest.mark.parametrize(
    "text", [b"", b"[]", b'{"v":1}', b'{"v":9}', b'{"v":1,"host":"a","time_s":"x"}', b"[" * 9999]
)
def test_what_is_no_state_of_a_node_is_one_error(text: bytes):
    with pytest.raises(WireError):
        from_text(text)


def test_callers_that_say_nothing_leave_the_others_their_answer(
    served: tuple[Board, str], monkeypatch: pytest.MonkeyPatch
):
    """A client that opens many connections gets no more threads than these, and each only for a while."""
    monkeypatch.setattr(web._Handler, "timeout", 0.2)
    host, port = served[1].removeprefix("http://").split(":")
    before = threading.active_count()
    idle = [socket.create_connection((host, int(port)), timeout=within(10)) for _ in range(3 * web.AT_ONCE)]
    deadline_s = time.monotonic() + within(20)
    answered = False
    while not answered and time.monotonic() < deadline_s:
        assert threading.active_count() <= before + web.AT_ONCE
        with contextlib.suppress(OSError):
            answered = b"host" in page_at(f"{served[1]}/status")
    for connection in idle:
        connection.close()
    assert answered


def test_callers_that_never_end_their_request_keep_no_other_from_its_answer(
    served: tuple[Board, str], monkeypatch: pytest.MonkeyPatch
):
    """A byte from time to time counts as a sign of life, or the caller connects again."""
    monkeypatch.setattr(web._Handler, "timeout", 600.0)
    monkeypatch.setattr(web, "SLOT_S", within(10))
    host, port = served[1].removeprefix("http://").split(":")
    slow = [socket.create_connection((host, int(port)), timeout=within(10)) for _ in range(web.AT_ONCE)]
    for connection in slow:
        connection.sendall(b"GET /status HTTP/1.1\r\nX")
    for _ in range(2 * web.AT_ONCE):
        assert b"host" in page_at(f"{served[1]}/status")
    for connection in slow:
        connection.close()


@pytest.mark.parametrize("address", ["no", "1:2:3", "99999999", "", ":"])
def test_an_impossible_address_is_one_line(tmp_path: Path, address: str):
    with pytest.raises(ConfigError, match="metrics address"):
        serve(address, tmp_path)


def test_an_address_that_is_taken_is_one_line(served: tuple[Board, str], tmp_path: Path):
    with pytest.raises(ConfigError, match="in use"):
        serve(served[1].rpartition(":")[2], tmp_path)


def test_hooks_are_counted_from_their_events(tmp_path: Path):
    clock = FakeClock()
    log = HookLog(str(tmp_path), "prolog", job_id=3, clock=clock)
    log.write(EventKind.PLACED, "before we looked", policy="magm")
    counts = HookCounts(tmp_path)
    log.write(EventKind.PLACED, "booking shared: GPU-a magm: 120.1 GiB free, SMACT 0.31", policy="magm")
    log.write(EventKind.PLACED, "slurm whole: GPU-a GPU-b idle", policy="idle")
    log.write(EventKind.REQUEUED, "no GPU has the memory; magm would place it")
    clock.sleep(0.04)
    log.write(EventKind.END)
    counts.update()
    counts.update()
    assert dict(counts.events) == {
        ("prolog", "placed", "magm"): 1,
        ("prolog", "placed", "idle"): 1,
        ("prolog", "requeued", ""): 1,
    }
    assert counts.durations["prolog"].sum_s == 0.04, "a hook is counted once, however much it logs"
    assert list(counts.durations["prolog"].cumulative())[:2] == [(0.025, 0), (0.05, 1)]


def test_damaged_lines_and_lines_of_another_version_count_for_nothing(tmp_path: Path):
    counts = HookCounts(tmp_path)
    good = to_line(entry_of(EventKind.UNCHANGED))
    later = json.dumps({**json.loads(good), "v": 2}).encode()
    unknown = json.dumps({**json.loads(good), "event": "flew away"}).encode()
    (tmp_path / "events.jsonl").write_bytes(
        b"\n".join([good[:40], later, unknown, b"[]", b"\xff", good, b""])
    )
    counts.update()
    assert dict(counts.events) == {("prolog", "unchanged", ""): 1}


def entry_of(kind: EventKind) -> Entry:
    return Entry(time_s=1.5, hook="prolog", job_id=1, restart=0, after_ms=10, event=LogEvent(kind=kind))


def test_the_dashboard_queries_metrics_that_exist():
    metrics = pytest.importorskip("slurm_plugin.monitor.export.metrics")
    board = Board(HookCounts(Path("/nonexistent")))
    board.show(NodeState(readings=(READING,), ledger=Ledger(allocations=(ALLOCATION,))))
    reported = metrics.NodeMetrics(board).collect()
    names = {sample for metric in reported for sample in (metric.name, f"{metric.name}_total")}
    names |= {f"{name}_bucket" for name in names}
    text = (Path(__file__).resolve().parents[5] / "gres_conf" / "grafana" / "rad.json").read_text()
    assert set(re.findall(r"rad_\w+", text)) - names == set()
