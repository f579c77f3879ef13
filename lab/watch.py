"""Observe the GPUs from outside; neither Slurm nor RAD's hooks are queried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.monitor.gpus.telemetry import Telemetry

GpuOnNode = tuple[str, int]
"""Node name and index."""


@dataclass(slots=True, kw_only=True)
class ObservedRun:
    """One run of a job as observed on the GPUs.

    Attributes:
        gpus: GPUs on which it used memory.
        peak_bytes: Its peak on one GPU.
        neighbours: The jobs that used memory on the same GPU at the same time.
    """

    gpus: set[GpuOnNode] = field(default_factory=set)
    peak_bytes: int = 0
    neighbours: set[int] = field(default_factory=set)


class Watcher:
    """Samples all GPUs of a cluster and records each run of each job there."""

    def __init__(self, nodes: Mapping[str, Telemetry]) -> None:
        self._nodes = dict(nodes)
        self.runs: dict[tuple[int, int], ObservedRun] = {}
        self.fullest_share = 0.0

    def sample(self) -> None:
        """Sample every GPU once."""
        for node, gpus in self._nodes.items():
            for gpu in gpus.read():
                self.fullest_share = max(self.fullest_share, gpu.memory_used_bytes / gpu.usable_bytes)
                used = [(key, p.memory_bytes or 0) for p in gpu.processes if (key := job_of(p.pid))]
                for key, memory_bytes in used:
                    run = self.runs.setdefault(key, ObservedRun())
                    run.gpus.add((node, gpu.index))
                    run.peak_bytes = max(run.peak_bytes, memory_bytes)
                    run.neighbours |= {job for (job, _), _ in used if job != key[0]}

    def of(self, job_id: int) -> list[ObservedRun]:
        """Return the runs of a job, first to last."""
        return [self.runs[key] for key in sorted(self.runs) if key[0] == job_id]


def job_of(pid: int) -> tuple[int, int] | None:
    """Return a process's job and how often that was restarted before; None if it is in no job."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    values = dict(entry.partition(b"=")[::2] for entry in entries)
    job_id = values.get(b"SLURM_JOB_ID")
    return None if job_id is None else (int(job_id), int(values.get(b"SLURM_RESTART_COUNT", b"0")))
