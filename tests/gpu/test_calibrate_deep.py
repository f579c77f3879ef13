"""`rad calibrate --deep` on the real GPU: what it fits, how long it takes, and whether an H200 gets our rows."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu.programs import PYTHON, Results, driver_version

from gpumemnet.calibration.fit.parts import PARTS
from gpumemnet.gpu_memory.rules.numbers import TABLE, read_site_table, read_table
from slurm_plugin.core.records.gpu import GpuReading

pytestmark = pytest.mark.gpu

LIBRARIES = {"device", "process", "allocator", "cublas", "cudnn", "mps"}
WITHIN = {
    "process": 0.06,
    "cublas": 0.04,
    "allocator": 0.0,
    "cudnn": 0.0,
    "mps": 0.1,
    "device": 0.0,
}
"""How far a number may lie from the shipped one on the GPU where that was found, as a share, by library."""


def test_calibrate_deep(gpu: GpuReading, run_folder: Path, results: Results):
    out = run_folder / "rules.csv"
    began_s = time.monotonic()
    done = subprocess.run(
        [str(Path(sys.prefix, "bin", "rad")), "calibrate", "--deep", "--python", PYTHON, "--out", str(out)],
        capture_output=True, text=True, timeout=560, check=False,
    )  # fmt: skip
    took_s = time.monotonic() - began_s
    results.add(
        gpu=gpu.name,
        driver=driver_version(),
        took_s=took_s,
        said=done.stdout,
        progress=done.stderr,
    )
    assert done.returncode == 0, done.stderr
    assert "left out" not in done.stderr
    assert took_s < 2 * sum(part.takes_s for part in PARTS)
    found = read_site_table(out)
    assert {rule.library for rule in found} == LIBRARIES
    if "H200" not in gpu.name:
        return
    rads = {(rule.library, rule.name): rule.value for rule in read_table(TABLE) if rule.gpu in ("h200", "*")}
    far = {
        (rule.library, rule.name): (rule.value, rads[rule.library, rule.name])
        for rule in found
        if abs(rule.value - rads[rule.library, rule.name])
        > WITHIN[rule.library] * rads[rule.library, rule.name]
    }
    results.add(other_than_rads={" ".join(key): pair for key, pair in far.items()})
    assert not far
