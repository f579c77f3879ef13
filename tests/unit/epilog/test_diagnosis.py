"""The Epilog waits for the monitor's next sample, and for no longer than one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fakes import FakeClock

from epilog.diagnosis import diagnose
from slurm_plugin.core.config.load import Config, Paths
from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation, Outcome
from slurm_plugin.core.units import GIB
from slurm_plugin.guard.incident_file import write_incidents
from slurm_plugin.guard.incidents import Incident
from slurm_plugin.monitor.next_sample import NEXT_SAMPLE_S
from slurm_plugin.monitor.window import write_window
from slurm_plugin.mps.state import State, write_state

ALLOCATION = Allocation(
    job_id=2,
    user_id=1002,
    kind="shared",
    gpus=("GPU-a",),
    gpu_indices=(0,),
    booked_bytes=4 * GIB,
    created_s=0.0,
)
ME = Process.running(os.getpid())
GONE = Process(pid=2**22 - 1, started_ticks=1)
OOM = Outcome(kind="gpu-oom", attempted_bytes=GIB, peak_bytes=2 * GIB)


class Monitor(FakeClock):
    """Samples when its time has come, while the Epilog sleeps."""

    def __init__(self, run: Path, *, next_s: float, incident: Incident | None = None) -> None:
        super().__init__()
        self.run, self.incident = run, incident
        self.due_s = self.time_s + next_s
        self.sample()

    def sample(self) -> None:
        reading = GpuReading(
            uuid="GPU-a",
            index=0,
            name="H100",
            memory_total_bytes=40 * GIB,
            memory_used_bytes=0,
            time_s=self.time_s,
        )
        write_window(self.run, (reading,), now_s=self.time_s)

    def sleep(self, duration_s: float) -> None:
        super().sleep(duration_s)
        if self.time_s >= self.due_s:
            self.due_s += 1.0
            if self.incident is not None:
                write_incidents(self.run, (self.incident,))
            self.sample()


def theft(now_s: float) -> Incident:
    return Incident(
        kind="memory",
        gpu="GPU-a",
        first_s=now_s,
        last_s=now_s,
        culprit=1,
        culprit_user_id=1001,
        detail="stole",
    )


def diagnosis(clock: FakeClock, run: Path, outcome: Outcome = OOM) -> str | None:
    found = diagnose(ALLOCATION, outcome, Config(paths=Paths(run=str(run))), clock, server_ends=lambda: 0)
    return None if found is None else found.kind


def test_what_the_next_sample_shows_counts(tmp_path: Path):
    clock = Monitor(tmp_path, next_s=0.7, incident=theft(FakeClock().time_s + 0.7))
    assert diagnosis(clock, tmp_path) == "victim"
    assert sum(clock.slept) == pytest.approx(0.75, abs=0.06)


def test_a_monitor_that_hangs_is_not_waited_for(tmp_path: Path):
    clock = Monitor(tmp_path, next_s=1e9)
    assert diagnosis(clock, tmp_path) is None
    assert sum(clock.slept) <= NEXT_SAMPLE_S + 0.06


def test_without_a_monitor_no_job_waits(tmp_path: Path):
    clock = FakeClock()
    assert diagnosis(clock, tmp_path) is None
    assert clock.slept == []


@pytest.mark.parametrize("kind", ["cancelled", "host-oom"])
def test_a_job_that_can_be_no_victim_does_not_wait(tmp_path: Path, kind: str):
    clock = Monitor(tmp_path, next_s=0.5)
    assert diagnosis(clock, tmp_path, Outcome(kind=kind)) is None  # type: ignore[arg-type]
    assert clock.slept == []


def test_nonsense_in_the_record_is_none(tmp_path: Path):
    (tmp_path / "monitor").mkdir()
    (tmp_path / "monitor" / "incidents.json").write_text(json.dumps([{"kind": "memory", "victims": []}]))
    assert diagnosis(FakeClock(), tmp_path) is None


@pytest.mark.parametrize(
    ("server", "job_id", "kind"),
    [(GONE, 2, "victim"), (GONE, 3, None), (ME, 2, None)],
    ids=["its server is gone", "another's is", "it is there"],
)
def test_whose_mps_server_died_while_the_monitor_was_away_is_a_victim(
    tmp_path: Path, server: Process, job_id: int, kind: str | None
):
    place = tmp_path / "mps" / "GPU-a" / "1002"
    write_state(place, State(daemon=ME, server=server, jobs={job_id: 4 * GIB}))
    assert diagnosis(FakeClock(), tmp_path, Outcome(kind="failed")) == kind
    assert diagnosis(FakeClock(), tmp_path, Outcome(kind="cancelled")) is None, "no job is to be requeued"
