"""Watch a private cluster from outside for states that must never occur; neither hooks nor radd are queried.

Twice a second it samples the simulated GPUs (memory of each process), each node's ledger and Slurm. It counts:

- a *double-booked* sample: a job with dedicated GPUs shared one, or two runs of one job ran at once;
- an *overfull* sample: jobs use more memory of a GPU than it has;
- an *overbooked* sample: a ledger that books more than a GPU has, or anything next to a whole GPU;
- an *orphan*: an allocation of a job that Slurm has not had on the node for a minute;
- a *drained* node.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.cluster import Cluster
from lab.daemons import TIME_FACTOR
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.identity import started_ticks
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus

SAMPLE_S = 0.5
ORPHAN_S = 60.0 * TIME_FACTOR
ALONE = "alone"
"""Prefix of the name of each job that was promised dedicated GPUs."""

_ON_NODE = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """Memory of one process on one GPU.

    Attributes:
        gpu: UUID of the GPU.
        job_id: Its job; None for a process outside jobs.
        restart: How often the job was restarted before this run.
        name: The job's name.
        memory_bytes: Its memory.
    """

    gpu: str
    job_id: int | None
    restart: int
    name: str
    memory_bytes: int


@dataclass(slots=True, kw_only=True)
class Findings:
    """Observations of a Sentinel so far.

    Attributes:
        samples: Number of samples.
        counts: Number of samples with each fault, by the fault's name.
        first: The first sample of each fault, in words.
        slowest_look_s: Longest time of one sample, during which nothing else was seen.
    """

    samples: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    slowest_look_s: float = 0.0

    def add(self, kind: str, words: str) -> None:
        """Count one sample of a fault."""
        self.counts[kind] += 1
        self.first.setdefault(kind, words)


def gpu_faults(processes: Sequence[ProcessMemory], usable_bytes: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the faults on the GPUs, as name and text.

    >>> a = ProcessMemory(gpu="G", job_id=1, restart=0, name="alone-1", memory_bytes=1)
    >>> b = ProcessMemory(gpu="G", job_id=2, restart=0, name="share-2", memory_bytes=1)
    >>> [kind for kind, _ in gpu_faults([a, b], {"G": 9})]
    ['double-booked']
    """
    found = []
    for gpu, usable in usable_bytes.items():
        here = [one for one in processes if one.gpu == gpu]
        jobs = {one.job_id: one.name for one in here if one.job_id is not None}
        runs = {(one.job_id, one.restart) for one in here if one.job_id is not None}
        if len(jobs) > 1 and any(name.startswith(ALONE) for name in jobs.values()):
            found.append(("double-booked", f"{gpu}: {jobs}"))
        if len(runs) > len(jobs):
            found.append(("double-booked", f"{gpu}: two runs of one job at once: {sorted(map(str, runs))}"))
        used = sum(one.memory_bytes for one in here if one.job_id is not None)
        if used > usable:
            found.append(("overfull", f"{gpu}: {used} of {usable} bytes: {jobs}"))
    return found


def ledger_faults(
    rows: Sequence[Mapping[str, Any]], usable_bytes: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Return the faults in a ledger, as name and text.

    >>> row = {"job_id": 1, "kind": "whole", "gpus": ["G"], "booked_bytes": 9}
    >>> ledger_faults([row, {**row, "job_id": 2, "kind": "shared", "booked_bytes": 1}], {"G": 9})[0][0]
    'overbooked'
    """
    found = []
    for gpu, usable in usable_bytes.items():
        here = [row for row in rows if gpu in row["gpus"]]
        booked = sum(int(row["booked_bytes"]) for row in here)
        if len(here) > 1 and any(row["kind"] == "whole" for row in here):
            found.append(("overbooked", f"{gpu}: next to a whole GPU: {[row['job_id'] for row in here]}"))
        elif booked > usable:
            found.append(("overbooked", f"{gpu}: {booked} of {usable} bytes"))
    return found


class Sentinel:
    """A thread that samples a cluster until it is stopped. Use it with `with`."""

    def __init__(self, cluster: Cluster, nodes: Collection[str]) -> None:
        self._cluster = cluster
        self._gpus = {node: SimulatedGpus(cluster.place.gpus(node)) for node in nodes}
        self._usable = {
            node: {device.uuid: device.usable_bytes for device in gpus.gpus()}
            for node, gpus in self._gpus.items()
        }
        self._on_node: frozenset[int] | None = None
        self._since: dict[tuple[str, int], float] = {}
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(look,), daemon=True)
            for look in (self._look, self._ask_slurm)
        ]
        self.findings = Findings()

    def __enter__(self) -> Sentinel:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, look: Any) -> None:
        clock = self._cluster.clock
        while not self._stopping.is_set():
            began_s = clock.monotonic_s()
            look()
            took_s = clock.monotonic_s() - began_s
            self.findings.slowest_look_s = max(self.findings.slowest_look_s, took_s)
            self._stopping.wait(max(0.0, SAMPLE_S - took_s))

    def _look(self) -> None:
        findings, present = self.findings, self._on_node
        now_s = self._cluster.clock.monotonic_s()
        orphaned: set[tuple[str, int]] = set()
        for node, usable in self._usable.items():
            for kind, words in gpu_faults(processes_on(self._cluster.place.gpus(node)), usable):
                findings.add(kind, f"{node} {words}")
            try:
                rows = self._cluster.allocations(node)
            except ValueError:  # a test has broken the file
                continue
            for kind, words in ledger_faults(rows, usable):
                findings.add(kind, f"{node} {words}")
            if present is not None:
                orphaned |= {(node, int(row["job_id"])) for row in rows if row["job_id"] not in present}
        self._since = {key: self._since.get(key, now_s) for key in orphaned}
        for (node, job), since_s in self._since.items():
            if now_s - since_s > ORPHAN_S:
                findings.add("orphan", f"{node}: job {job} has an allocation and is not there")
        findings.samples += 1

    def _ask_slurm(self) -> None:
        """Read which jobs are on nodes, and the nodes' states; without slurmctld's answer both are unknown."""
        try:
            jobs = self._cluster.slurm("squeue", "-h", "-o", "%A %T", timeout_s=3).splitlines()
            nodes = self._cluster.slurm("sinfo", "-h", "-N", "-o", "%N %T", timeout_s=3).splitlines()
        except CommandError:
            self._on_node = None
            return
        pairs = [line.split() for line in jobs]
        self._on_node = frozenset(int(job) for job, state in pairs if state in _ON_NODE)
        for line in sorted(set(nodes)):
            if "drain" in line:
                self.findings.add("drained", line)


def processes_on(folder: Path) -> list[ProcessMemory]:
    """Return the memory of live processes on a folder's simulated GPUs, even if its list of GPUs is broken."""
    found = []
    for path in sorted((folder / "processes").glob("*.json")):
        try:
            row = json.loads(path.read_text())
            alive = started_ticks(row["pid"]) == row["started_ticks"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it ended meanwhile
        if alive:
            job_id, restart, name = _job_of(row["pid"])
            found.append(
                ProcessMemory(
                    gpu=row["uuid"],
                    job_id=job_id,
                    restart=restart,
                    name=name,
                    memory_bytes=row["memory_bytes"],
                )
            )
    return found


def _job_of(pid: int) -> tuple[int | None, int, str]:
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None, 0, ""
    values = dict(entry.decode(errors="replace").partition("=")[::2] for entry in entries)
    job_id = values.get("SLURM_JOB_ID", "")
    restart = int(values.get("SLURM_RESTART_COUNT", "0"))
    return (int(job_id) if job_id.isdigit() else None), restart, values.get("SLURM_JOB_NAME", "")
