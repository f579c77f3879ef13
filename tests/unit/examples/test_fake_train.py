from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.core.recovery.classify import Ending, classify
from slurm_plugin.core.recovery.oom_patterns import load_patterns
from slurm_plugin.core.units import GIB, MIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.simulated_gpus import GpuSpec

PROGRAM = Path(__file__).resolve().parents[3] / "examples" / "fake_train.py"


@pytest.fixture
def gpus(tmp_path: Path) -> Path:
    physical_gpus = [
        GpuSpec(uuid=f"GPU-{i}", index=i, name="Simulated", memory_total_bytes=16 * GIB) for i in range(4)
    ]
    SimulatedGpus.create(tmp_path / "n0", physical_gpus)
    return tmp_path


def environment(gpus: Path, **env: str) -> dict[str, str]:
    return {"RAD_SIMULATED_GPUS": str(gpus), "SLURMD_NODENAME": "n0", "PATH": os.environ["PATH"], **env}


def command(*options: str) -> list[str]:
    return [sys.executable, str(PROGRAM), "--seconds", "0.2", *options]


def train(gpus: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*options), env=environment(gpus, **env), capture_output=True, text=True, check=False
    )


def test_it_trains_on_every_gpu_that_the_variable_names_in_its_order(gpus: Path) -> None:
    done = train(gpus, "--memory", "1G", CUDA_VISIBLE_DEVICES="GPU-3,1")
    assert done.returncode == 0, done.stderr
    assert "training on 2 GPU(s): GPU-3 GPU-1" in done.stdout
    assert done.stdout.count("phase 1 of 1 done, 1.00 GiB") == 2


def test_a_full_gpu_ends_it_in_words_that_the_epilog_knows(gpus: Path) -> None:
    done = train(gpus, "--memory", "1G,20G", CUDA_VISIBLE_DEVICES="GPU-2")
    assert done.returncode == 1
    ending = Ending(exit_status=256, peak_bytes=15 * GIB, limit_bytes=16 * GIB)
    outcome = classify(ending, (done.stderr,), load_patterns())
    assert (outcome.kind, outcome.pattern, outcome.attempted_bytes) == ("gpu-oom", "pytorch", 19 * GIB)
    assert outcome.evidence is not None and outcome.evidence.startswith(
        "torch.OutOfMemoryError: CUDA out of memory."
    )


def test_a_cap_counts_like_a_smaller_gpu(gpus: Path) -> None:
    limit = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M"}
    assert train(gpus, "--memory", "1.5G", CUDA_VISIBLE_DEVICES="GPU-0", **limit).returncode == 0
    done = train(gpus, "--memory", "3G", CUDA_VISIBLE_DEVICES="GPU-0", **limit)
    assert done.returncode == 1
    assert "GPU 0 has a total capacity of 2.00 GiB" in done.stderr


def test_it_fails_if_the_process_of_any_gpu_fails(gpus: Path) -> None:
    SimulatedGpus(gpus / "n0").hold("GPU-1", 15 * GIB + 512 * MIB)
    try:
        done = train(gpus, "--memory", "4G", CUDA_VISIBLE_DEVICES="GPU-0,GPU-1")
    finally:
        SimulatedGpus(gpus / "n0").release()
    assert done.returncode == 1
    assert done.stderr.count("torch.OutOfMemoryError") == 1


def test_it_goes_on_until_a_file_is_there(gpus: Path, tmp_path: Path) -> None:
    end = tmp_path / "end"
    argv = command("--memory", "3G", "--until", str(end))
    with subprocess.Popen(argv, env=environment(gpus), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "phase 1 of 1 done" not in process.stdout.readline():
            pass
        assert process.poll() is None and SimulatedGpus(gpus / "n0").read()[0].memory_used_bytes == 3 * GIB
        end.touch()
        assert process.wait(60) == 0


def test_no_visible_gpu_is_pytorchs_other_error(gpus: Path) -> None:
    done = train(gpus, CUDA_VISIBLE_DEVICES="GPU-of-another-node")
    assert done.returncode == 1
    assert "No CUDA GPUs are available" in done.stderr
