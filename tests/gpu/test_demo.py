"""`make demo` on real GPUs: the same jobs, and the same things must come of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from gpu.programs import Results

from lab.cluster import Cluster
from lab.demo import NODE_NAME, Demo
from lab.install import why_no_slurm
from lab.place import Place
from lab.real_gpus import real_node
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(why_no_slurm() is not None, reason=str(why_no_slurm()))]

CHECKOUT = Path(__file__).resolve().parents[2]


def outputs(root: Path) -> list[Path]:
    """Return what the jobs wrote."""
    return sorted((root / "work").glob("*.out"))


def test_the_demo_ends_as_expected(gpus: tuple[GpuReading, ...], results: Results):
    lines: list[str] = []
    cluster = Cluster(Place(root=Path("/var/tmp/raddemo"), venv=Path(sys.prefix)))
    demo = Demo(cluster, real_node(NODE_NAME, gpus), NvmlTelemetry(), checkout=CHECKOUT, say=lines.append)
    try:
        as_expected = demo.run()
    finally:
        results.add(gpu=gpus[0].name, lines=lines)
        if folder := os.environ.get("RAD_GPU_RESULTS"):
            printed = [f"==> {path.name} <==\n{path.read_text()}" for path in outputs(cluster.place.root)]
            Path(folder, "demo_logs.txt").write_text("\n".join([cluster.logs(200), *printed]))
    assert as_expected, "\n".join(lines)
