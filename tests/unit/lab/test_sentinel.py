"""The sentinel sees what must never be, and is silent about what may."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lab.sentinel import ProcessMemory, gpu_faults, ledger_faults, processes_on
from slurm_plugin.core.process.identity import started_ticks

USABLE = {"G": 100, "H": 100}


def process(
    job: int | None, name: str = "share-1", *, gpu: str = "G", size: int = 10, restart: int = 0
) -> ProcessMemory:
    return ProcessMemory(gpu=gpu, job_id=job, restart=restart, name=name, memory_bytes=size)


@pytest.mark.parametrize(
    ("processes", "faults"),
    [
        ([process(1), process(2)], []),
        ([process(1, "alone-1")], []),
        ([process(1, "alone-1"), process(1, "alone-1")], []),  # two processes of one job
        ([process(1, "alone-1"), process(2)], ["double-booked"]),
        ([process(1, "alone-1"), process(2, gpu="H")], []),
        ([process(1, "alone-1"), process(None, "")], []),  # an unmanaged process is in no job
        ([process(1), process(1, restart=1)], ["double-booked"]),
        ([process(1, size=60), process(2, size=60)], ["overfull"]),
        (
            [process(1, size=60), process(None, "", size=60)],
            [],
        ),  # an unmanaged process's memory is no job's booking
    ],
)
def test_gpus(processes: list[ProcessMemory], faults: list[str]) -> None:
    assert [kind for kind, _ in gpu_faults(processes, USABLE)] == faults


def row(job: int, booked: int, kind: str = "shared", gpu: str = "G") -> dict[str, object]:
    return {"job_id": job, "kind": kind, "gpus": [gpu], "booked_bytes": booked}


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([row(1, 50), row(2, 50)], 0),
        ([row(1, 50), row(2, 51)], 1),
        ([row(1, 100, "whole")], 0),
        ([row(1, 100, "whole"), row(2, 0)], 1),
        ([row(1, 100, "whole"), row(2, 100, "whole", "H")], 0),
    ],
)
def test_ledgers(rows: list[dict[str, object]], count: int) -> None:
    assert len(ledger_faults(rows, USABLE)) == count


def test_only_live_processes_hold_memory(tmp_path: Path) -> None:
    folder = tmp_path / "processes"
    folder.mkdir()
    pid = os.getpid()
    mine = {"pid": pid, "started_ticks": started_ticks(pid), "uuid": "G", "memory_bytes": 7, "smact": 0}
    (folder / "a.json").write_text(json.dumps(mine))
    (folder / "b.json").write_text(
        json.dumps({**mine, "started_ticks": 1})
    )  # the pid of another process by now
    (folder / "c.json").write_text("half a fi")
    assert [one.memory_bytes for one in processes_on(tmp_path)] == [7]
