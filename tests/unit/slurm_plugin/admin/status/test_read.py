"""What `rad status` shows of a node."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from golden_texts import Golden

from slurm_plugin.admin.cli import main
from slurm_plugin.admin.status import text as status_view
from slurm_plugin.admin.users import name_of
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.export.status import GpuStatus, gpu_status
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.simulated_gpus import GpuSpec
from slurm_plugin.monitor.window import JobUsage

READING = GpuReading(
    uuid="GPU-a",
    index=0,
    name="H100",
    memory_total_bytes=100 * GIB,
    memory_used_bytes=35 * GIB,
    time_s=0.0,
    smact=0.75,
    smact_source="nvml-gpm",
    processes=(
        GpuProcess(pid=1, memory_bytes=10 * GIB),
        GpuProcess(pid=2, memory_bytes=20 * GIB),
        GpuProcess(pid=3, memory_bytes=5 * GIB),
    ),
)
LEDGER = Ledger(
    allocations=tuple(
        Allocation(
            job_id=job_id,
            user_id=1000,
            kind="shared",
            gpus=("GPU-a",),
            gpu_indices=(0,),
            booked_bytes=24 * GIB,
            created_s=0.0,
            estimate_bytes=22 * GIB,
        )
        for job_id in (7, 8)
    )
)
USAGES = {7: JobUsage(job_id=7, first_s=0, last_s=1, peak_bytes=11 * GIB, mean_smact=0.5)}


@pytest.fixture
def status() -> GpuStatus:
    return gpu_status(READING, LEDGER, {1: 7, 2: 8}, USAGES, idle={}, averaged=True)


def test_booked_and_live_side_by_side(status: GpuStatus):
    assert (status.booked_bytes, status.used_bytes, status.unmanaged_bytes) == (48 * GIB, 35 * GIB, 5 * GIB)
    first, second = status.jobs
    assert (first.used_bytes, first.peak_bytes, first.smact) == (10 * GIB, 11 * GIB, 0.5)
    assert (second.used_bytes, second.peak_bytes, second.smact) == (20 * GIB, None, None)


def test_text_has_a_line_for_each_job_and_for_unmanaged_processes(status: GpuStatus):
    lines = status_view.as_text([status]).splitlines()
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "0 0.75 35.0 GiB 48.0 GiB 100.0 GiB 7 1000 24.0 GiB 22.0 GiB 10.0 GiB 11.0 GiB 0.50",
        "8 1000 24.0 GiB 22.0 GiB 20.0 GiB - -",
        "outside 5.0 GiB",
    ]


def test_people_read_names(status: GpuStatus):
    text = status_view.as_text([status], {1000: "nobody"}.__getitem__)
    assert text.count("  nobody  ") == 2 and "1000" not in text, text


def test_the_page(status: GpuStatus, golden: Golden):
    others = [dataclasses.replace(status, index=1, uuid="GPU-b", jobs=(), unmanaged_bytes=0, state="mig")]
    golden("status.txt", status_view.as_text([status, *others]))
    golden("status.json", status_view.as_json([status, *others]))


def test_what_misleads_is_flagged(status: GpuStatus):
    text = status_view.as_text([dataclasses.replace(status, smact_source="nvml-utilisation", averaged=False)])
    assert "0.75!" in text
    assert "not SMACT" in text
    assert "No rad-monitor" in text


@pytest.fixture
def config(tmp_path: Path) -> str:
    SimulatedGpus.create(
        tmp_path / "gpus", [GpuSpec(uuid="GPU-s", index=0, name="S", memory_total_bytes=40 * GIB)]
    )
    path = tmp_path / "rad.toml"
    path.write_text(
        f'[paths]\nrun = "{tmp_path}/run"\nstate = "{tmp_path}/state"\n'
        f'[telemetry]\nsource = "simulated"\nsimulated_folder = "{tmp_path}/gpus"\n'
    )
    return str(path)


def test_the_command(config: str):
    result = CliRunner().invoke(main, ["status", "--config", config])
    assert result.exit_code == 0
    assert "40.0 GiB" in result.output


def test_the_command_for_programs(config: str):
    result = CliRunner().invoke(main, ["status", "--config", config, "--json"])
    tree = json.loads(result.output)
    assert (tree["version"], tree["gpus"][0]["uuid"], tree["gpus"][0]["jobs"]) == (1, "GPU-s", [])


def test_a_user_who_may_not_read_the_allocations_is_sent_to_rad_top(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It used to show idle GPUs: a ledger that cannot be read looked like an empty one."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ledger").write_text("")
    monkeypatch.setattr(os, "access", lambda path, *_, **__: not str(path).endswith("ledger"))
    result = CliRunner().invoke(main, ["status", "--config", config])
    assert result.exit_code == 1
    assert "only root may read this node's allocations; rad top shows them to all users" in result.output


def test_no_gpus_is_one_line(tmp_path: Path):
    path = tmp_path / "rad.toml"
    path.write_text(
        f'[paths]\nrun = "{tmp_path}"\n[telemetry]\nsource = "simulated"\nsimulated_folder = "/none"\n'
    )
    result = CliRunner().invoke(main, ["status", "--config", str(path)])
    assert (result.exit_code, len(result.output.splitlines())) == (1, 1)


def test_history(config: str, tmp_path: Path):
    (tmp_path / "state").mkdir()
    rows = [
        {"user": 1, "profile": "aa", "peak_bytes": 2 * GIB},
        {"user": 2, "profile": "bb", "peak_bytes": GIB},
        {"user": 1, "profile": "aa", "peak_bytes": GIB},
    ]
    text = "\n".join([*map(json.dumps, rows), "damaged"])
    (tmp_path / "state" / "peaks.jsonl").write_text(text)
    result = CliRunner().invoke(main, ["history", "--config", config])
    assert [line.split() for line in result.output.splitlines()[1:]] == [
        [name_of(2), "-", "-", "bb", "1", "1024", "1024", "-", "-", "-"],
        [name_of(1), "-", "-", "aa", "2", "2048", "1024", "-", "-", "-"],
    ]
    assert (
        len(CliRunner().invoke(main, ["history", "--config", config, "--user", "2"]).output.splitlines()) == 2
    )


def test_history_elsewhere_is_one_line(config: str):
    result = CliRunner().invoke(main, ["history", "--config", config])
    assert (result.exit_code, "run this on the controller" in result.output) == (2, True)
