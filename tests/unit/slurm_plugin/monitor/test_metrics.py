"""What Prometheus is told, and what is counted from the hooks' logs."""

from __future__ import annotations

import re
import socket
import urllib.request
from pathlib import Path

import pytest
from fakes import FakeClock

from slurm_plugin.core.errors import ConfigError
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


def test_hooks_are_counted_from_their_logs(tmp_path: Path):
    log = HookLog(str(tmp_path), "prolog", job_id=3, clock=FakeClock())
    log.write("placed stamp shared: GPU-old magm: before we looked")
    counts = HookCounts(tmp_path)
    log.write("placed stamp shared: GPU-a magm: 120.1 GiB free, SMACT 0.31, 2 neighbours")
    log.write("placed slurm whole: GPU-a GPU-b idle")
    log.write("put back: no GPU has the memory")
    HookLog(str(tmp_path), "epilog", job_id=3, clock=FakeClock()).write("something new")
    counts.update()
    counts.update()
    assert dict(counts.events) == {
        ("prolog", "placed", "magm"): 1,
        ("prolog", "placed", "idle"): 1,
        ("prolog", "put back", ""): 1,
        ("epilog", "other", ""): 1,
    }
    assert list(counts.durations["prolog"].cumulative())[-1] == (float("inf"), 3)


def test_half_a_line_waits_and_a_rotated_log_starts_afresh(tmp_path: Path):
    path = tmp_path / "prolog.log"
    counts = HookCounts(tmp_path)
    path.write_text("t job=1 after=10ms placed x lug: y\nt job=2 after=20ms put ba")
    counts.update()
    with path.open("a") as file:
        file.write("ck: z\n")
    counts.update()
    path.write_text("t job=3 after=30ms left alone: w\n")
    counts.update()
    assert sorted(counts.events) == [
        ("prolog", "left alone", ""),
        ("prolog", "placed", "lug"),
        ("prolog", "put back", ""),
    ]


def test_the_dashboard_asks_for_metrics_that_exist():
    metrics = pytest.importorskip("slurm_plugin.monitor.metrics")
    served = metrics.NodeMetrics(HookCounts(Path("/nonexistent")))
    served.show((READING,), {}, {}, Ledger(reservations=(HELD,)))
    names = {sample for metric in served.collect() for sample in (metric.name, f"{metric.name}_total")}
    names |= {f"{name}_bucket" for name in names}
    text = (Path(__file__).resolve().parents[4] / "gres_conf" / "grafana" / "rad.json").read_text()
    assert set(re.findall(r"rad_\w+", text)) - names == set()
