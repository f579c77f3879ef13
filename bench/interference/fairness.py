"""Measure what a user with one training gets next to a user with ten on one GPU, and what weights change.

    python bench/interference/fairness.py OUT.json [--seconds 5] [--limit-s 120]

Needs an NVIDIA GPU, PyTorch with torchvision and nvidia-cuda-mps-control; the script starts and ends MPS daemons of its
own. All trainings are ResNets of torchvision on random images. What is in OUT.json is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONTROL = "nvidia-cuda-mps-control"
MANY = 10
THREADS, PRIORITY = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_CLIENT_PRIORITY"
WORKLOADS = {"resnet50": (32, 224), "resnet18": (64, 64)}
"""Batch size and pixels: a training that keeps most SMs busy, and one of small kernels."""
READY_S = 40.0


@dataclass(frozen=True)
class FairnessCase:
    """Trainings of two users.

    Attributes:
        one: Variables of the training of the first user; None for no such training.
        many: Variables of each training of the second user; None for none.
        own_servers: Whether each user has an MPS server.
    """

    one: Mapping[str, str] | None = field(default_factory=dict)
    many: Mapping[str, str] | None = field(default_factory=dict)
    own_servers: bool = False


CASES = {
    "one alone": FairnessCase(many=None),
    "ten alone": FairnessCase(one=None),
    "one server": FairnessCase(),
    "a server for each user": FairnessCase(own_servers=True),
    "one server, threads by user: 50 % and ten times 5 %": FairnessCase(
        one={THREADS: "50"}, many={THREADS: "5"}
    ),
    "one server, threads by job of the ten: 10 %": FairnessCase(many={THREADS: "10"}),
    "one server, the ten at lower priority": FairnessCase(many={PRIORITY: "1"}),
}


def main() -> int:
    """Measure what is not in the file yet; return 3 if more is left than there was time for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--limit-s", type=float, default=120.0, help="begin none later")
    parser.add_argument("--device", default="cuda", help="cpu tries the script, with any program for MPS")
    options = parser.parse_args()
    began_s = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what it started
    import torch
    import torchvision  # noqa: F401 - trainings are forked from here

    done: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    done.setdefault("torch", torch.__version__)
    for model in WORKLOADS:
        for name, case in CASES.items():
            key = f"{model}, {name}"
            if key in done:
                continue
            if time.monotonic() - began_s > options.limit_s:
                return 3
            done[key] = measured(case, model, options.seconds, options.device)
            options.out.write_text(json.dumps(done, indent=1) + "\n")
            print(f"{time.monotonic() - began_s:5.0f} s  {key}: {json.dumps(done[key])}", flush=True)
    return 0


def measured(case: FairnessCase, model: str, seconds: float, device: str) -> dict[str, Any]:
    """Return images per second of each training of a case.

    Args:
        case: The case.
        model: The model.
        seconds: How long they are measured, all at once.
        device: Where they train.
    """
    with tempfile.TemporaryDirectory(prefix="rad", dir="/tmp") as name:
        folders = [Path(name, user) for user in ("one", "many")]
        if not case.own_servers:
            folders[1] = folders[0]
        daemons = {folder: _daemon(folder) for folder in dict.fromkeys(folders)}
        children: list[tuple[int, int, int]] = []
        try:
            wanted = [(folders[0], case.one)] if case.one is not None else []
            wanted += [(folders[1], case.many)] * MANY if case.many is not None else []
            children = [_child(folder, variables, model, seconds, device) for folder, variables in wanted]
            for _, _, ready in children:
                if os.read(ready, 1) != b"r":
                    return {"failed": "a training did not start"}
            for _, start, _ in children:
                os.write(start, b"s")
            rates = [json.loads(os.read(ready, 100) or b"null") for _, _, ready in children]
        finally:
            for pid, *_ in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            for folder, daemon in daemons.items():
                _stop(folder, daemon)
    many = rates[1:] if case.one is not None else rates
    return {
        "one": rates[0] if case.one is not None else None,
        "many": many,
        "sum": round(sum(filter(None, rates)), 1),
    }


def _stop(folder: Path, daemon: subprocess.Popen[bytes]) -> None:
    """End a daemon and its server: one that is only terminated may leave its server on the GPU."""
    environment = {**os.environ, **_mps(folder)}
    subprocess.run([_program()], env=environment, input=b"quit -t 2\n", timeout=20, check=False)
    try:
        daemon.wait(20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _program() -> str:
    return shutil.which(CONTROL) or f"/usr/local/nvidia/bin/{CONTROL}"


def _daemon(folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir()
    with (folder / "output").open("wb") as output:
        daemon = subprocess.Popen(
            [_program(), "-f"],
            env={**os.environ, **_mps(folder), "CUDA_VISIBLE_DEVICES": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    end_s = time.monotonic() + 10.0
    while not (folder / "control").exists():
        if time.monotonic() > end_s:
            raise SystemExit(f"MPS did not start: {(folder / 'output').read_text()}")
        time.sleep(0.05)
    return daemon


def _mps(folder: Path) -> dict[str, str]:
    return {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}


def _child(
    folder: Path, variables: Mapping[str, str], model: str, seconds: float, device: str
) -> tuple[int, int, int]:
    """Fork a training; return its pid, where to tell it to start, and where it says that it is ready, and its rate."""
    start_read, start_write = os.pipe()
    ready_read, ready_write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(start_read)
        os.close(ready_write)
        return pid, start_write, ready_read
    try:
        os.close(ready_read)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ.update({**_mps(folder), **variables, "CUDA_VISIBLE_DEVICES": "0"})
        signal.alarm(round(READY_S + 2 * seconds))
        os.write(ready_write, json.dumps(_train(model, seconds, device, start_read, ready_write)).encode())
        signal.pause()
    except BaseException as exc:  # noqa: BLE001 - a forked child must not go on as its parent
        print(f"training: {exc}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def _train(model: str, seconds: float, device: str, start: int, ready: int) -> float:
    """Train, from the start on for some seconds; return images per second of them."""
    import torch
    import torchvision

    torch.set_num_threads(1)
    batch, pixels = WORKLOADS[model]
    net = getattr(torchvision.models, model)(weights=None).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, pixels, pixels, device=device)
    labels = torch.randint(0, 1000, (batch,), device=device)

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    steps(3)
    os.write(ready, b"r")
    os.set_blocking(start, False)
    while not _prints(start):
        steps(1)
    began_s, done = time.monotonic(), 0
    while time.monotonic() - began_s < seconds:
        steps(2)
        done += 2
    ended_s = time.monotonic()
    while time.monotonic() - began_s < seconds + 1.5:  # the others are measured next to it
        steps(1)
    return round(batch * done / (ended_s - began_s), 1)


def _prints(start: int) -> bool:
    try:
        return bool(os.read(start, 1))
    except BlockingIOError:
        return False


if __name__ == "__main__":
    sys.exit(main())
