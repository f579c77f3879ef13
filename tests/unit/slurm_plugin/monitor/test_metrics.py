"""What Prometheus is told, and what is counted from the hooks' logs."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from pathlib import Path

import pytest
from fakes import FakeClock

from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.events import Entry, Event, EventKind, to_line
from slurm_plugin.core.gpu import GpuCounters, GpuProcess, GpuReading
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.core.log import HookLog
from slurm_plugin.core.records import Reservation
from slurm_plugin.monitor.hook_counts import HookCounts
from slurm_plugin.monitor.window import JobUsage

GIB = 2**30
READING = GpuReading(
    uuid="GPU-a",
    index=0,
    name="card",
    memory_total_bytes=100 * GIB,
    memory_used_bytes=30 * GIB,
    time_s=0.0,
    smact=0.75,
    smact_source="nvml-gpm",
    processes=(GpuProcess(pid=1, memory_bytes=10 * GIB), GpuProcess(pid=2, memory_bytes=20 * GIB)),
    counters=GpuCounters(energy_j=5.0, power_w=300.0),
)
HELD = Reservation(
    job_id=7,
    user_id=1000,
    kind="shared",
    gpus=("GPU-a",),
    seats=(0,),
    booked_bytes=12 * GIB,
    created_s=0.0,
    estimate_bytes=11 * GIB,
)


def test_owners_booking_and_use_are_shown_side_by_side(tmp_path: Path):
    metrics = pytest.importorskip("slurm_plugin.monitor.metrics")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    served = metrics.serve(str(port), tmp_path)
    usage = JobUsage(job_id=7, first_s=0, last_s=1, peak_bytes=11 * GIB, mean_smact=0.5)
    served.show((READING,), {7: usage}, {1: 7}, Ledger(reservations=(HELD,)))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    job = '{gpu="GPU-a",job="7",user_id="1000"}'
    told = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(told[f"rad_job_memory_booked_bytes{job}"]) == 12 * GIB
    assert float(told[f"rad_job_memory_estimate_bytes{job}"]) == 11 * GIB
    assert float(told[f"rad_job_memory_used_bytes{job}"]) == 10 * GIB
    assert float(told[f"rad_job_memory_peak_bytes{job}"]) == 11 * GIB
    assert float(told[f"rad_job_smact_ratio{job}"]) == 0.5
    assert float(told['rad_gpu_memory_strangers_bytes{gpu="GPU-a",index="0"}']) == 20 * GIB
    assert float(told['rad_gpu_smact_ratio{gpu="GPU-a",index="0"}']) == 0.75
    assert 'rad_gpu_smocc_ratio{gpu="GPU-a",index="0"}' not in told
    assert told['rad_gpu_smact_source{gpu="GPU-a",index="0",source="nvml-gpm"}'] == "1.0"


@pytest.mark.parametrize("address", ["no", "1:2:3", "99999999"])
def test_an_impossible_address_is_one_line(tmp_path: Path, address: str):
    metrics = pytest.importorskip("slurm_plugin.monitor.metrics")
    with pytest.raises(ConfigError, match="--metrics"):
        metrics.serve(address, tmp_path)


def test_hooks_are_counted_from_their_events(tmp_path: Path):
    clock = FakeClock()
    log = HookLog(str(tmp_path), "prolog", job_id=3, clock=clock)
    log.say(EventKind.PLACED, "before we looked", policy="magm")
    counts = HookCounts(tmp_path)
    log.say(EventKind.PLACED, "stamp shared: GPU-a magm: 120.1 GiB free, SMACT 0.31", policy="magm")
    log.say(EventKind.PLACED, "slurm whole: GPU-a GPU-b idle", policy="idle")
    log.say(EventKind.PUT_BACK, "no GPU has the memory; magm would place it")
    clock.sleep(0.04)
    log.say(EventKind.END)
    counts.update()
    counts.update()
    assert dict(counts.events) == {
        ("prolog", "placed", "magm"): 1,
        ("prolog", "placed", "idle"): 1,
        ("prolog", "put back", ""): 1,
    }
    assert counts.durations["prolog"].sum_s == 0.04, "a hook is counted once, however much it tells"
    assert list(counts.durations["prolog"].cumulative())[:2] == [(0.025, 0), (0.05, 1)]


def test_damaged_lines_and_lines_of_another_version_count_for_nothing(tmp_path: Path):
    counts = HookCounts(tmp_path)
    good = to_line(entry_of(EventKind.LEFT_ALONE))
    later = json.dumps({**json.loads(good), "v": 2}).encode()
    unknown = json.dumps({**json.loads(good), "event": "flew away"}).encode()
    (tmp_path / "events.jsonl").write_bytes(
        b"\n".join([good[:40], later, unknown, b"[]", b"\xff", good, b""])
    )
    counts.update()
    assert dict(counts.events) == {("prolog", "left alone", ""): 1}


def entry_of(kind: EventKind) -> Entry:
    return Entry(time_s=1.5, hook="prolog", job_id=1, restart=0, after_ms=10, event=Event(kind=kind))


def test_the_dashboard_asks_for_metrics_that_exist():
    metrics = pytest.importorskip("slurm_plugin.monitor.metrics")
    served = metrics.NodeMetrics(HookCounts(Path("/nonexistent")))
    served.show((READING,), {}, {}, Ledger(reservations=(HELD,)))
    names = {sample for metric in served.collect() for sample in (metric.name, f"{metric.name}_total")}
    names |= {f"{name}_bucket" for name in names}
    text = (Path(__file__).resolve().parents[4] / "gres_conf" / "grafana" / "rad.json").read_text()
    assert set(re.findall(r"rad_\w+", text)) - names == set()
