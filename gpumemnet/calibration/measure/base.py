"""Measure a PyTorch process' memory on this GPU beyond its tensors.

    python base.py conv|dense|convs_only

Run as a separate program by a Python with torch, so it imports nothing of RAD. It trains a tiny network for some steps,
with the libraries that real ones load (cuDNN for conv and convs_only, cuBLAS for conv and dense), and prints one JSON
object:

    {"base_bytes": ..., "gpu": "NVIDIA H200", "torch": "2.11.0+cu130"}

The base is what nvidia-smi shows for the process less what PyTorch's allocator reserves, as for the measured rows
(learning/dataset/running/runner.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

MIB = 1 << 20  # nvidia-smi uses MiB


def main() -> None:
    """Measure one kind and print it."""
    import torch
    from torch import nn

    kind = sys.argv[1]
    layers: dict[str, list[nn.Module]] = {
        "conv": [nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)],
        "convs_only": [nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 8, 3)],
        "dense": [nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)],
    }
    model = nn.Sequential(*layers[kind]).cuda()
    batch = torch.randn(16, *([256] if kind == "dense" else [3, 32, 32]), device="cuda")
    model(batch)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    base_bytes = used_bytes() - torch.cuda.memory_reserved()
    print(
        json.dumps(
            {"base_bytes": base_bytes, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        )
    )


def used_bytes() -> int:
    """Return the driver's memory count for this process."""
    rows = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    ).stdout.splitlines()
    found = dict(row.replace(" ", "").split(",")[:2] for row in rows if "," in row)
    used = found.get(str(os.getpid()), "")
    if not used.isdigit():
        sys.exit("nvidia-smi does not show this process's memory (a container with its own process ids?)")
    return int(used) * MIB


if __name__ == "__main__":
    main()
