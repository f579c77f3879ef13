"""Launchers that lose what stands in for the GPU: their script is ended before it trains, with the cause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from traced import MAIN, estimated

pytest.importorskip("torch")

TRAIN = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
net = torch.nn.Linear(10, 10).to(device)
optimizer = torch.optim.Adam(net.parameters())
open("began", "w").close()
for step in range(200000):
    optimizer.zero_grad()
    net(torch.randn(4, 10, device=device)).sum().backward()
    optimizer.step()
torch.save(net.state_dict(), "model.pt")
"""
PYTHON = sys.executable
LAUNCHERS = {
    "a search path of its own": (f"PYTHONPATH=$PWD {PYTHON} loop.py", "PYTHONPATH=...:$PYTHONPATH"),
    "-E": (f"{PYTHON} -E loop.py", "leave -E out"),
    "-I": (f"{PYTHON} -I loop.py", "leave -I out"),
    "-S with another flag": (
        f"{PYTHON} -uS -c \"import site, sys; site.main; sys.path += {sys.path!r}; exec(open('loop.py').read())\"",
        "leave -uS out",
    ),
    "no environment": (f"env -i {PYTHON} loop.py", "its own environment"),
    "in the background": (f"(env -i setsid {PYTHON} loop.py &) ; sleep 60", "its own environment"),
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_it_is_ended_and_the_cause_reported(tmp_path: Path, launcher: str) -> None:
    (tmp_path / "loop.py").write_text(TRAIN)
    (tmp_path / "model.pt").write_text("trained for a week")
    shell, fix = LAUNCHERS[launcher]
    (tmp_path / "run.sh").write_text(shell)
    command = [PYTHON, "-c", MAIN, "--", "bash", "run.sh"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "was ended before it could train on the CPU" in done.stderr
    assert fix in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(os.listdir(tmp_path)) == ["loop.py", "model.pt", "run.sh"]
    assert (tmp_path / "model.pt").read_text() == "trained for a week"


def test_a_launcher_that_keeps_the_search_path_is_traced(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(TRAIN)
    (tmp_path / "run.sh").write_text(f"export PYTHONPATH=$PWD:$PYTHONPATH\n{PYTHON} loop.py")
    command = [PYTHON, "-c", MAIN, "--json", "--", "bash", "run.sh"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert json.loads(done.stdout)["estimator"] == "trace"


def test_torch_that_the_environment_itself_imports_is_traced(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import torch")
    (tmp_path / "loop.py").write_text(TRAIN)
    command = [PYTHON, "-c", MAIN, "--json", "--", PYTHON, "loop.py"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))),
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment, check=False
    )
    assert json.loads(done.stdout)["estimator"] == "trace"


OVERWRITES = """
    import os, sys, torch

    net = torch.nn.Linear(100, 100).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for step in range(10):
        net(torch.randn(4, 100, device="cuda")).sum().backward()
        optimizer.step()
        if step == 0:
            WRITES
"""
WRITES = {
    "raw": "open('earlier', 'wb').write(net.weight.detach().cpu().numpy().tobytes())",
    "numpy": "import numpy; numpy.save(open('earlier', 'wb'), net.weight.detach().cpu().numpy())",
    "memmap": "import numpy; numpy.memmap('earlier', dtype='int8', mode='r+')[:] = 0",
    "torchs own writer": "torch._C.PyTorchFileWriter('earlier').write_end_of_file()",
    "a scripted module": "torch.jit.script(torch.nn.Linear(2, 2)).save('earlier')",
    "a memory-mapped tensor": "torch.from_file('earlier', shared=True, size=8, dtype=torch.uint8).zero_()",
    "a launched program": "os.system('echo > earlier')",
}


@pytest.mark.parametrize("kind", WRITES)
def test_results_of_an_earlier_run_stay_and_the_script_is_traced(tmp_path: Path, kind: str) -> None:
    if "numpy" in WRITES[kind]:
        pytest.importorskip("numpy")
    (tmp_path / "earlier").write_text("trained for a week")
    done = estimated(tmp_path, OVERWRITES.replace("WRITES", WRITES[kind]))
    assert (tmp_path / "earlier").read_text() == "trained for a week"
    assert sorted(os.listdir(tmp_path)) == ["earlier", "train.py"]
    assert json.loads(done.stdout)["estimator"] == "trace", done.stdout
