"""Two real GPUs in one node of a real Slurm: policies, pinning, MPS on both, GPUs of one's own, and recovery.

Every job shows which GPUs CUDA shows it, and NVML is watched from outside for where it holds memory.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpu.programs import Results, eventually
from gpu.real_cluster import NODE, shorten_window, start

from lab.cluster import Cluster
from lab.install import why_no_slurm
from lab.jobs import Jobs
from lab.watch import ObservedRun, Watcher
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from slurm_plugin.monitor.window import read_window

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(why_no_slurm() is not None, reason=str(why_no_slurm()))]

CHECKOUT = Path(__file__).resolve().parents[2]
WINDOW_S = 3
"""Of activity, so that a training is known soon."""
SCRIPT = """#!/bin/bash
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
{lines}
env | grep -E '^(RAD_|CUDA_)' | sort
export HOME=$PWD OMP_NUM_THREADS=2
exec python3 {command}
"""
RESNET18 = "#SBATCH --gpus=1\n#RAD model=models/resnet18_torchinfo.txt batch_size=64 optimizer=sgd-momentum"
WHOLE = "#SBATCH --gpus=1"
TRAINING = (
    "training.py progress-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0} --model resnet18 --batch 64 --size 64"
)
CPUS = 32
"""That Slurm believes in: what the machine has is not what is tried here."""
NEVER_S = 60.0
"""Longer than anything here may take."""


class Site:
    """The cluster, its jobs by name, and what was seen of them from outside."""

    def __init__(self, cluster: Cluster, gpus: tuple[GpuReading, ...], folder: Path) -> None:
        self.cluster, self.jobs = cluster, Jobs(cluster, folder)
        self.uuid_of = {gpu.index: gpu.uuid for gpu in gpus}
        self.name = gpus[0].name
        self._nvml = NvmlTelemetry()
        self._watcher = Watcher({NODE: self._nvml})

    def submit(self, name: str, lines: str, command: str, user: str = "nobody") -> int:
        script = self.jobs.folder / f"{name}.sh"
        script.write_text(SCRIPT.format(lines=lines, command=command))
        script.chmod(0o755)
        return self.jobs.accepted(f"--job-name={name}", script.name, user=user)

    def hold(self, name: str, lines: str, mib: int, user: str = "nobody") -> int:
        """Submit a job that holds memory, does nothing with it and does not end."""
        return self.submit(name, lines, f"cuda_client.py {mib} still", user)

    def watch(self, what: str, condition: Callable[[], bool], timeout_s: float = NEVER_S) -> None:
        """Look at the GPUs until a condition holds."""

        def holds() -> bool:
            self._watcher.sample()
            return condition()

        eventually(what, holds, timeout_s)

    def runs(self, job_id: int) -> list[ObservedRun]:
        return self._watcher.of(job_id)

    def output(self, job_id: int) -> str:
        paths = list(self.jobs.folder.glob(f"*-{job_id}.out"))
        return paths[0].read_text(errors="replace") if paths else ""

    def reported(self, job_id: int) -> list[str]:
        """Return the UUIDs that CUDA showed a job last."""
        found = re.findall(r"^ready \d+ (.*)$", self.output(job_id), re.MULTILINE)
        return found[-1].split() if found else []

    def placed(self, job_id: int) -> list[str]:
        """Wait until a job holds memory, check that all say the same of where, and return its GPUs' UUIDs."""
        self.watch(f"job {job_id} is ready", lambda: bool(self.reported(job_id)))
        self.watch(f"job {job_id} holds memory", lambda: bool(self.runs(job_id)))
        reported = self.reported(job_id)
        seen = sorted(self.uuid_of[index] for _, index in self.runs(job_id)[-1].gpus)
        allocated = next(row["gpus"] for row in self.cluster.allocations(NODE) if row["job_id"] == job_id)
        assert sorted(reported) == seen == sorted(allocated)
        assert f"RAD_GPUS={','.join(allocated)}\n" in self.output(job_id)
        return reported

    def reason(self, job_id: int) -> str:
        """Return why a job waits; "" if it does not."""
        fields = self.jobs.fields(job_id)
        return fields.get("Reason", "") if fields.get("JobState") == "PENDING" else ""

    def mps_servers(self) -> set[str]:
        """Return the GPUs that an MPS server serves."""
        return {
            gpu.uuid
            for gpu in self._nvml.read()
            for process in gpu.processes
            if _program(process.pid).startswith("nvidia-cuda-mps")
        }

    def activity(self) -> dict[str, float]:
        """Return each GPU's SM activity as the window says; empty without a window."""
        window = read_window(self.cluster.place.run / NODE, now_s=time.time())
        return {gpu.uuid: gpu.smact or 0.0 for gpu in window or ()}

    def youngest_s(self) -> float:
        """Return the age of the youngest job on the node."""
        return time.monotonic() - max(float(row["created_s"]) for row in self.cluster.allocations(NODE))

    def end(self, *job_ids: int) -> None:
        """Cancel jobs and wait until they hold nothing."""
        self.cluster.slurm("scancel", "--full", *map(str, job_ids))
        self.watch(
            f"{job_ids} hold nothing",
            lambda: not {row["job_id"] for row in self.cluster.allocations(NODE)} & set(job_ids),
        )


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


@pytest.fixture(scope="module")
def cluster(gpus: tuple[GpuReading, ...]) -> Iterator[Cluster]:
    if len(gpus) < 2:
        pytest.skip("needs two GPUs")
    running = start(gpus[:2], root=Path("/var/tmp/rad2"), venv=Path(sys.prefix), cpus=CPUS)
    try:
        shorten_window(running, WINDOW_S)
        yield running
    finally:
        if results := os.environ.get("RAD_GPU_RESULTS"):
            Path(results, "two_gpus_logs.txt").write_text(running.logs(200))
        running.down()


@pytest.fixture
def site(cluster: Cluster, gpus: tuple[GpuReading, ...], request: pytest.FixtureRequest) -> Iterator[Site]:
    folder = cluster.place.root / "work" / request.node.name
    shutil.copytree(CHECKOUT / "examples", folder)
    for name in ("training.py", "cuda_client.py"):
        shutil.copy(CHECKOUT / "tests" / "gpu" / name, folder)
    folder.chmod(0o1777)
    yield Site(cluster, gpus[:2], folder)
    cluster.cancel_jobs()
    eventually("the node is empty", lambda: cluster.allocations(NODE) == [])


def test_a_gpu_of_ones_own_is_an_empty_one(site: Site, results: Results):
    small = site.hold("small", "#SBATCH --gres=shard:8", 2000)
    (shared,) = site.placed(small)
    first = site.hold("whole1", WHOLE, 4000)
    (own,) = site.placed(first)
    assert own != shared

    second = site.hold("whole2", WHOLE, 4000, user="games")
    site.watch("the second one waits", lambda: site.reason(second) in ("Resources", "Priority"))
    assert site.runs(second) == []
    freed_s = time.time()
    site.end(small)
    later = site.placed(second)
    results.add(shared=shared, own=own, later=later, second_ready_after_s=time.time() - freed_s)
    assert later == [shared]
    assert site.jobs.state(first) == "RUNNING"
    assert [run.neighbours for job_id in (first, second) for run in site.runs(job_id)] == [set(), set()]
    assert "CUDA_MPS" not in site.output(first)


def test_after_running_out_of_memory_it_gets_an_empty_gpu(site: Site, results: Results):
    keeper = site.hold("keeper", "#SBATCH --gres=shard:8", 2000)
    (kept,) = site.placed(keeper)
    started_s = time.time()
    grows = site.submit("grows", RESNET18, f"{TRAINING} --steps 300 --grab-gib 24", user="games")
    site.watch("it ended well", lambda: site.jobs.state(grows) == "COMPLETED")
    fields = site.jobs.fields(grows)
    (other,) = set(site.uuid_of.values()) - {kept}
    gpus = [[site.uuid_of[index] for _, index in run.gpus] for run in site.runs(grows)]
    results.add(
        took_s=time.time() - started_s,
        keeper=kept,
        gpus=gpus,
        peaks_mib=[run.peak_bytes >> 20 for run in site.runs(grows)],
        neighbours=[sorted(run.neighbours) for run in site.runs(grows)],
        admin_comment=fields.get("AdminComment"),
    )
    assert fields.get("Restarts") == "1"
    assert "OutOfMemoryError" in site.output(grows)
    assert gpus[-1] == [other]
    assert site.runs(grows)[-1].neighbours == set()
    assert site.jobs.state(keeper) == "RUNNING"


def test_a_job_with_both_gpus_sees_both(site: Site, results: Results):
    small = site.hold("small", "#SBATCH --gres=shard:8", 2000)
    site.placed(small)
    both = site.hold("both", "#SBATCH --gres=gpu:2", 2000)
    # Slurm keeps it waiting, or (22.05) starts it and our Prolog puts it back.
    site.watch("it waits for both", lambda: site.reason(both) in ("Resources", "Priority", "BeginTime"))
    freed_s = time.time()
    site.end(small)
    gpus = site.placed(both)
    results.add(
        both=gpus, ready_after_s=time.time() - freed_s, restarts=site.jobs.fields(both).get("Restarts")
    )
    assert [run.neighbours for run in site.runs(both)] == [set()]
    assert sorted(gpus) == sorted(site.uuid_of.values())
    assert "CUDA_MPS" not in site.output(both)
