"""The two estimators that run a model's code, as the command uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpumemnet.cli.answer import for_module
from gpumemnet.errors import TraceError
from gpumemnet.training import TrainingSetup
from gpumemnet.units import KIB

pytest.importorskip("torch")

SOURCE = """
from torch import nn

def model():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 32 * 32, 10))

ready = model()
def with_loss(): return model(), nn.CrossEntropyLoss()
def breaks(): raise KeyError("no weights")
"""
SETUP = TrainingSetup(batch_size=64)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    return str(path)


def rad_estimate(*args: str, cwd: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from gpumemnet.cli import main; main()", *args]
    return subprocess.run(program, capture_output=True, text=True, timeout=300, cwd=cwd, check=False)


@pytest.mark.parametrize("name", ["model", "ready", "with_loss"])
def test_faketensor_counts_the_live_storages_of_one_step(file: str, name: str) -> None:
    found = for_module(f"{file}:{name}", ["Bx3x32x32"], SETUP, gpu="h200", estimator="faketensor")
    hidden = 64 * 16 * 32 * 32 * 4
    parameters = (16 * 3 * 9 + 16 + 16 * 32 * 32 * 10 + 10) * 4
    # Two tensors of the hidden layer are kept, and the gradient of one is made next to them.
    assert 2 * hidden + parameters < found.estimate_bytes < 4 * hidden + 3 * parameters + 1024 * KIB
    assert (found.estimator, found.family, found.confidence) == ("faketensor", "cnn", None)
    assert sum(found.breakdown_bytes.values()) == found.estimate_bytes == found.upper_bytes


def test_half_precision_halves_it(file: str) -> None:
    whole, half = (
        for_module(
            f"{file}:model", ["Bx3x32x32"], TrainingSetup(batch_size=64, precision=precision),
            gpu="h200", estimator="faketensor",
        ).estimate_bytes
        for precision in ("fp32", "bf16")
    )  # fmt: skip
    assert half < 0.55 * whole


@pytest.mark.parametrize(
    ("name", "shape", "line"),
    [
        ("breaks", "Bx3x32x32", "failed: KeyError"),
        ("model", "Bx5x32x32", "the model does not run on these inputs"),
        ("model", "Bx3x32", "the model does not run on these inputs"),
        ("missing", "Bx3x32x32", "has no 'missing'"),
    ],
)
def test_what_cannot_run_is_one_line(file: str, name: str, shape: str, line: str) -> None:
    with pytest.raises(TraceError, match=line) as caught:
        for_module(f"{file}:{name}", [shape], SETUP, gpu="h200", estimator="faketensor")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("named", "said", "confidence", "trust"),
    [
        ("rad", "trace", 0.95, "exceeded by at most 5% of jobs"),
        ("faketensor", "faketensor", None, "how often it is exceeded was not measured"),
    ],
)
def test_the_command_uses_them(
    file: str, named: str, said: str, confidence: float | None, trust: str
) -> None:
    args = ("--module", "net:model", "--input", "64x3x32x32", "--estimator", named)
    done = rad_estimate(*args, "--json", cwd=str(Path(file).parent))
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert (answer["estimator"], answer["confidence"]) == (said, confidence)
    assert 0 < answer["estimate_mib"] <= answer["upper_mib"]
    text = rad_estimate(*args, "--explain", cwd=str(Path(file).parent)).stdout
    assert trust in text
