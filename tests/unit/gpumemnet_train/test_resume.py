"""examples/resume comes to the same weights whenever it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from paths import CHECKOUT

torch = pytest.importorskip("torch")

TRAIN = CHECKOUT / "examples" / "resume" / "train.py"
STEPS = 60


def start(folder: Path, every: int) -> subprocess.Popen[str]:
    argv = [sys.executable, str(TRAIN), f"--checkpoints={folder}", f"--steps={STEPS}", f"--every={every}"]
    env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)


def output(process: subprocess.Popen[str]) -> str:
    text, _ = process.communicate(timeout=120)
    return text


def weights(folder: Path) -> dict[str, object]:
    state = torch.load(folder / f"step-{STEPS:09d}", weights_only=True)
    return {**state["model"], "random": state["random"]}


def test_killed_and_signalled_it_comes_to_the_same_weights(tmp_path: Path) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    whole = start(straight, STEPS)
    assert "done" in output(whole)
    killed = start(stopped, 4)
    assert killed.stdout is not None
    for line in killed.stdout:
        if line.startswith("step 8 saved"):
            killed.send_signal(signal.SIGKILL)
            break
    output(killed)
    signalled = start(stopped, 4)
    assert signalled.stdout is not None
    first = signalled.stdout.readline()
    assert int(first.split()[2].rstrip(",")) in range(8, STEPS, 4)
    signalled.send_signal(signal.SIGUSR1)
    output(signalled)
    assert signalled.returncode in (75, 0)  # 0: it was done before the signal
    again = start(stopped, 4)
    assert "done" in output(again) and again.returncode == 0
    found, wanted = weights(stopped), weights(straight)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
