"""Measure one part of a GPU's and its libraries' rules.

    python rules.py device|segments|cublas|mps

Run as a separate program by a Python with torch, so it imports nothing of RAD; each prints one JSON object.

| part | measures |
|---|---|
| device | the GPU's name, memory and multiprocessors, and the versions of its libraries |
| segments | for requests of many sizes, the segment that PyTorch's allocator requests from the driver |
| cublas | cuBLAS' permanent memory for one thread, for a product with a bias, and for both training threads |
| mps | the driver's count for an MPS server and for the bare context of its client |
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

MIB = 1 << 20
SMI = ("nvidia-smi", "--format=csv,noheader,nounits")
START_S = 10.0


def smi(query: str) -> list[list[str]]:
    """Return nvidia-smi's output, by rows and columns."""
    output = subprocess.run([*SMI, query], check=True, capture_output=True, text=True, timeout=30).stdout
    return [[word.strip() for word in row.split(",")] for row in output.splitlines() if row.strip()]


def device() -> dict[str, Any]:
    """Return the GPU and the versions."""
    import torch

    here = torch.cuda.get_device_properties(0)
    cudnn = torch.backends.cudnn.version() or 0
    uuid = str(here.uuid).removeprefix("GPU-") if hasattr(here, "uuid") else ""
    gpus = smi("--query-gpu=uuid,memory.total,driver_version")
    gpu = next((row for row in gpus if uuid and row[0].endswith(uuid)), gpus[0])
    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": f"{cudnn // 10000}.{cudnn // 100 % 100}",
        "driver": gpu[2],
        "memory_bytes": int(gpu[1]) * MIB,
        "multiprocessors": here.multi_processor_count,
        "threads": here.max_threads_per_multi_processor,
    }


def segments() -> dict[str, Any]:
    """Request blocks from an empty allocator one by one, of sizes around each MiB."""
    import torch

    found = []
    sizes = [512, *(mib * MIB + more for mib in range(1, 41) for more in (-512, 0, 512))]
    for size in sizes:
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        block = torch.empty(size, dtype=torch.uint8, device="cuda")
        found.append([size, torch.cuda.memory_reserved() - before])
        del block
    return {"segments": found}


def cublas() -> dict[str, Any]:
    """Measure after a product, a product with a bias, and a training step."""
    import torch
    from torch.nn import functional

    x, w = (torch.zeros(64, 64, device="cuda", requires_grad=True) for _ in range(2))
    bias = torch.zeros(64, device="cuda", requires_grad=True)

    def kept(*, of_bias: bool, backward: bool) -> int:
        before = torch.cuda.memory_allocated()
        y = functional.linear(x, w, bias if of_bias else None)
        if backward:
            y.sum().backward()
        del y
        x.grad = w.grad = bias.grad = None
        torch.cuda.synchronize()
        return int(torch.cuda.memory_allocated() - before)

    handle = kept(of_bias=False, backward=False)
    lt = kept(of_bias=True, backward=False)
    more = kept(of_bias=True, backward=True)
    return {"handle_bytes": handle, "lt_bytes": lt, "both_threads_bytes": handle + more}


def mps() -> dict[str, Any]:
    """Start a separate MPS daemon, create a bare context under it, and stop both, the client first."""
    folder = tempfile.mkdtemp(prefix="rad-mps-")
    os.environ.update(CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
    with open(os.devnull, "wb") as nothing:  # a daemon would keep this program's output open
        start = ["nvidia-cuda-mps-control", "-d"]
        subprocess.run(start, check=True, timeout=30, stdout=nothing, stderr=nothing)
    try:
        with subprocess.Popen(
            [sys.executable, __file__, "context"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as client:  # it ends when its input closes
            assert client.stdout
            return _used_under_mps(client.pid, json.loads(client.stdout.readline())["reserved_bytes"])
    finally:
        _control("quit -t 5")
        shutil.rmtree(folder, ignore_errors=True)


def context() -> None:
    """Create a bare context, print its allocator's memory, and keep it until the input ends."""
    import torch

    torch.empty(1, device="cuda")
    torch.cuda.synchronize()
    print(json.dumps({"reserved_bytes": torch.cuda.memory_reserved()}), flush=True)
    sys.stdin.read()


def _used_under_mps(client_pid: int, reserved_bytes: int) -> dict[str, int]:
    """Return the driver's count for the server, and for a client beyond its allocator's reserved memory."""
    end = time.monotonic() + START_S
    while True:
        servers = _control("get_server_list").split()
        used = {row[0]: row[1] for row in smi("--query-compute-apps=pid,used_memory")}
        server = next((used[pid] for pid in servers if used.get(pid, "").isdigit()), "")
        client = used.get(str(client_pid), "")
        if server and client.isdigit():
            return {"server_bytes": int(server) * MIB, "client_bytes": int(client) * MIB - reserved_bytes}
        if time.monotonic() > end:
            sys.exit(f"nvidia-smi shows neither server nor client of MPS: {used}")
        time.sleep(0.2)


def _control(command: str) -> str:
    done = subprocess.run(
        ["nvidia-cuda-mps-control"],
        input=command + "\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stdout


PARTS = {"device": device, "segments": segments, "cublas": cublas, "mps": mps}


def main() -> None:
    """Measure one part and print it."""
    if sys.argv[1:] == ["context"]:  # started by the part "mps"
        context()
    else:
        print(json.dumps(PARTS[sys.argv[1]]()))


if __name__ == "__main__":
    main()
