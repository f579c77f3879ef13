"""Real Slurm and real GPU: real PyTorch trainings through sbatch, the whole way round."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu.programs import Results, eventually
from gpu.real_cluster import NODE, start

from lab.cluster import Cluster
from lab.install import why_no_slurm
from lab.jobs import Jobs
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.window import read_window

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(why_no_slurm() is not None, reason=str(why_no_slurm()))]

CHECKOUT = Path(__file__).resolve().parents[2]
HEAD = """#!/bin/bash
#SBATCH --gpus=1
#SBATCH --cpus-per-task=2
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
{rad}
env | grep -E '^(RAD_|CUDA_)' | sort
export HOME=$PWD TORCHINDUCTOR_CACHE_DIR=$PWD/cache OMP_NUM_THREADS=2
python3 training.py progress-$SLURM_JOB_ID-${{SLURM_RESTART_COUNT:-0}} {options}
"""
RESNET18 = "#RAD model=models/resnet18_torchinfo.txt batch_size=64 optimizer=sgd-momentum"
SMALL = "--model resnet18 --size 224 --batch 64 --steps 700"


@pytest.fixture(scope="module")
def cluster(gpus: tuple[GpuReading, ...]) -> Iterator[Cluster]:
    running = start(gpus, root=Path("/var/tmp/radg"), venv=Path(sys.prefix), cpus=os.cpu_count() or 1)
    try:
        yield running
    finally:
        if results := os.environ.get("RAD_GPU_RESULTS"):
            Path(results, "slurm_logs.txt").write_text(running.logs(200))
        running.down()


@pytest.fixture
def jobs(cluster: Cluster) -> Iterator[Jobs]:
    folder = cluster.place.root / "work"
    shutil.copytree(CHECKOUT / "examples", folder)
    shutil.copy(CHECKOUT / "tests" / "gpu" / "training.py", folder)
    folder.chmod(0o1777)
    yield Jobs(cluster, folder)
    cluster.cancel_jobs()


def submit(jobs: Jobs, name: str, rad: str, options: str, user: str = "nobody") -> int:
    script = jobs.folder / f"{name}.sh"
    script.write_text(HEAD.format(rad=rad, options=options))
    script.chmod(0o755)
    return jobs.accepted(f"--job-name={name}", script.name, user=user)


def spans(jobs: Jobs, job_id: int) -> list[tuple[float, float, int]]:
    """Return first report, last report and images of each run."""
    found = []
    for path in sorted(jobs.folder.glob(f"progress-{job_id}-*")):
        rows = [line.split() for line in path.read_text().splitlines()]
        if rows:
            found.append((float(rows[0][0]), float(rows[-1][0]), int(rows[-1][1])))
    return found


def test_the_whole_way_round(cluster: Cluster, jobs: Jobs, gpu: GpuReading, results: Results):
    run = cluster.place.run / NODE
    eventually("window", lambda: read_window(run, now_s=time.time()) is not None)
    started_s = time.time()
    shared = [submit(jobs, f"share{number}", RESNET18, SMALL) for number in range(3)]
    other = submit(jobs, "other", RESNET18, SMALL, user="games")
    # Its summary is a small model's; it takes 24 GiB more after some steps.
    grows = submit(jobs, "grows", RESNET18, f"{SMALL} --grab-gib 24")
    whole = submit(jobs, "whole", "# no RAD lines: a GPU of its own", SMALL)
    everyone = [*shared, other, grows, whole]

    eventually("four at once", lambda: all(spans(jobs, job_id) for job_id in [*shared, other]), 90.0)
    allocations = cluster.allocations(NODE)
    eventually("grows is requeued and runs again", lambda: len(spans(jobs, grows)) == 2, 180.0)
    ended = {job_id: jobs.wait(job_id, timeout_s=180.0) for job_id in everyone}
    took_s = time.time() - started_s

    output = {job_id: jobs.output(job_id) for job_id in everyone}
    logs = {hook: (cluster.place.log / f"{hook}.log").read_text() for hook in ("prolog", "epilog")}
    hook_ms = {
        hook: [int(ms) for ms in re.findall(r"after=(\d+)ms (?:placed|ok|failed|gpu-oom)", text)]
        for hook, text in logs.items()
    }
    results.add(
        took_s=took_s,
        states={job_id: fields.get("JobState") for job_id, fields in ended.items()},
        restarts={job_id: fields.get("Restarts") for job_id, fields in ended.items()},
        admin_comments={job_id: fields.get("AdminComment") for job_id, fields in ended.items()},
        images_per_s={
            job_id: [images / (last - first) for first, last, images in spans(jobs, job_id) if last > first]
            for job_id in everyone
        },
        spans={job_id: spans(jobs, job_id) for job_id in everyone},
        reserved_while_sharing=allocations,
        prolog_log=logs["prolog"].splitlines(),
        epilog_log=logs["epilog"].splitlines(),
        hook_ms=hook_ms,
        environments={job_id: text.splitlines()[:16] for job_id, text in output.items()},
    )

    assert {fields.get("JobState") for fields in ended.values()} == {"COMPLETED"}
    assert [ended[job_id].get("Restarts") for job_id in [*shared, other]] == ["0"] * 4
    assert ended[grows].get("Restarts") == "1"
    assert "OutOfMemoryError" in output[grows]
    assert all(f"RAD_GPUS={gpu.uuid}" in text for text in output.values())
    assert all("CUDA_MPS_PIPE_DIRECTORY" in output[job_id] for job_id in [*shared, other])
    assert "RAD_KIND=whole" in output[whole]
    assert "CUDA_MPS" not in output[whole]
    together = [spans(jobs, job_id)[0] for job_id in [*shared, other]]
    assert max(first for first, _, _ in together) < min(last for _, last, _ in together)
    # An exclusive GPU is exclusive: no other run overlaps a whole one.
    alone = [spans(jobs, whole)[0], spans(jobs, grows)[1]]
    every = [span for job_id in everyone for span in spans(jobs, job_id)]
    for mine, foreign in itertools.product(alone, every):
        assert mine == foreign or mine[1] <= foreign[0] or foreign[1] <= mine[0]
    eventually("ledger empty", lambda: cluster.allocations(NODE) == [], 20.0)
    assert not list((run / "mps").glob("*/*/pipe"))
