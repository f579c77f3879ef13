#!/usr/bin/env python3
"""A training that is none: it takes memory step by step, keeps a GPU busy, and fails as PyTorch does.

It sees GPUs as a CUDA program does: those that CUDA_VISIBLE_DEVICES names, each with the memory that
CUDA_MPS_PINNED_DEVICE_MEM_LIMIT leaves it. RAD_SIMULATED_GPUS names the folder of simulated GPUs; without it, they are
real ones.

    python3 fake_train.py --memory 12G --seconds 5
    python3 fake_train.py --memory 3G,18G --seconds 8      # 3 GiB in the first half, 18 GiB in the second
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from cuda_gpu import LIBRARY, OUT_OF_MEMORY, CudaError, CudaGpu

from slurm_plugin.core.units import GIB, MIB, parse_size
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.simulated_gpus import GpuFullError, GpuSpec

CONTEXT_BYTES = 512 * MIB
"""What a process holds before its first tensor; 740 to 760 MiB were seen with PyTorch on an H200."""

STEP_S = 0.2


class OutOfMemoryError(RuntimeError):
    """What PyTorch 2.x raises; its traceback names it torch.OutOfMemoryError."""


OutOfMemoryError.__module__ = "torch"


class VisibleGpu(Protocol):
    """One GPU as this process sees it."""

    name: str

    def grow_to(self, memory_bytes: int, *, smact: float) -> None:
        """Hold so much memory, or fail in PyTorch's words."""

    def beat(self) -> None:
        """Keep the GPU busy for a moment."""


class LabGpu:
    """A GPU of a simulation."""

    def __init__(self, gpus: SimulatedGpus, device: GpuSpec, *, ordinal: int, cap_bytes: int | None) -> None:
        self.name = device.uuid
        self._gpus, self._ordinal, self._cap_bytes = gpus, ordinal, cap_bytes
        self._held_bytes = 0

    def grow_to(self, memory_bytes: int, *, smact: float) -> None:
        """Hold so much memory, or fail in PyTorch's words."""
        try:
            self._gpus.hold(self.name, memory_bytes, cap_bytes=self._cap_bytes, smact=smact)
        except GpuFullError as full:
            held = self._held_bytes
            words = _words(self._ordinal, memory_bytes - held, held, full.free_bytes, full.total_bytes)
            raise OutOfMemoryError(words) from None
        self._held_bytes = memory_bytes

    def beat(self) -> None:
        """Do nothing: its memory shows how busy it is."""


class RealGpu:
    """A GPU of this machine. What keeps it busy is a small kernel now and then, whatever `smact` asks for."""

    def __init__(self, ordinal: int, name: str, driver: Any) -> None:
        self.name = name
        self._gpu, self._ordinal = CudaGpu(ordinal, driver), ordinal
        self._held_bytes = 0

    def grow_to(self, memory_bytes: int, *, smact: float) -> None:
        """Hold so much memory, or fail in PyTorch's words; the context, which comes first, counts with it."""
        wanted = memory_bytes - max(self._held_bytes, CONTEXT_BYTES)
        try:
            if wanted > 0:
                self._gpu.take(wanted)
        except CudaError as exc:
            if exc.code != OUT_OF_MEMORY:
                raise
            words = _words(self._ordinal, wanted, self._held_bytes, *self._gpu.memory())
            raise OutOfMemoryError(words) from None
        self._held_bytes = max(memory_bytes, self._held_bytes)

    def beat(self) -> None:
        """Fill some memory."""
        self._gpu.beat()


def _words(ordinal: int, wanted: int, held: int, free: int, total: int) -> str:
    """Return the message of PyTorch 2.x (c10/cuda/CUDACachingAllocator.cpp, AllocatorConfig's hint left as is)."""
    return (
        f"CUDA out of memory. Tried to allocate {_size(wanted)}. GPU {ordinal} has a total capacity of "
        f"{_size(total)} of which {_size(free)} is free. Including non-PyTorch memory, this process has "
        f"{_size(held)} memory in use. Of the allocated memory {_size(max(0, held - CONTEXT_BYTES))} is allocated by "
        f"PyTorch, and {_size(0)} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
        "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
        "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def _size(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.2f} GiB" if n_bytes >= GIB else f"{n_bytes / MIB:.2f} MiB"


def visible_gpus(environment: Mapping[str, str]) -> list[VisibleGpu]:
    """Return the GPUs that CUDA would show this process, in its order.

    Real ones are not met before they are used, so that a process may still fork.

    Raises:
        OSError: The GPUs would be real ones, and there is no CUDA driver.
    """
    folder = environment.get("RAD_SIMULATED_GPUS")
    if folder is None:
        driver = ctypes.CDLL(LIBRARY)
        names = environment.get("CUDA_VISIBLE_DEVICES", "0").split(",")
        return [RealGpu(ordinal, name, driver) for ordinal, name in enumerate(name for name in names if name)]
    return list(_simulated(SimulatedGpus(Path(folder, environment.get("SLURMD_NODENAME", ""))), environment))


def _simulated(gpus: SimulatedGpus, environment: Mapping[str, str]) -> list[LabGpu]:
    """Return the GPUs of a simulation that CUDA would show; unknown names end the list, as in CUDA."""
    devices = gpus.gpus()
    by_uuid = {device.uuid: device for device in devices}
    served = [part for part in Path(environment.get("CUDA_MPS_PIPE_DIRECTORY", "")).parts if part in by_uuid]
    own = environment.get("RAD_GPUS", "").split(",") if environment.get("RAD_CONFINED") == "1" else served
    if any(
        device.uuid in own for device in devices
    ):  # a daemon counts its own GPU alone, a confined job its own
        devices = tuple(replace(by_uuid[uuid], index=index) for index, uuid in enumerate(own))
    tokens = environment.get("CUDA_VISIBLE_DEVICES", ",".join(str(device.index) for device in devices)).split(
        ","
    )
    caps = _caps(environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""))
    seen: list[LabGpu] = []
    for token in tokens:
        device = next(
            (device for device in devices if token.strip() in (device.uuid, str(device.index))), None
        )
        if device is None:
            break
        seen.append(LabGpu(gpus, device, ordinal=len(seen), cap_bytes=caps.get(len(seen))))
    return seen


def _caps(text: str) -> dict[int, int]:
    """Return the limits in a text such as "0=4G,1=8G", by the device's number in this process."""
    pairs = [part.partition("=") for part in text.split(",") if "=" in part]
    return {int(ordinal): parse_size(size) for ordinal, _, size in pairs}


def train(gpu: VisibleGpu, phases: list[int], options: argparse.Namespace) -> None:
    """Hold each phase's memory for an equal share of the time, and the last one's until the named file exists."""
    gpu.grow_to(CONTEXT_BYTES, smact=0.0)
    for phase, memory_bytes in enumerate(phases):
        gpu.grow_to(max(memory_bytes, CONTEXT_BYTES), smact=options.smact)
        end_s = time.monotonic() + options.seconds / len(phases)
        while time.monotonic() < end_s:
            gpu.beat()
            time.sleep(STEP_S)
        print(f"phase {phase + 1} of {len(phases)} done, {_size(memory_bytes)} on {gpu.name}", flush=True)
    while options.until is not None and not options.until.exists():
        gpu.beat()
        time.sleep(STEP_S)


def main() -> int:
    """Train, and return the exit status."""
    parser = argparse.ArgumentParser(description="A training that is none.")
    parser.add_argument("--memory", default="2G", help="memory at each phase, such as 4G or 3G,18G")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long all phases take together")
    parser.add_argument("--smact", type=float, default=0.3, help="share of SMs kept busy, 0 to 1")
    parser.add_argument("--until", type=Path, help="a file: go on afterwards until it exists")
    options = parser.parse_args()
    try:
        visible = visible_gpus(os.environ)
    except OSError:
        parser.error(
            f"there is no CUDA driver ({LIBRARY}), and RAD_SIMULATED_GPUS is not set: start a private Slurm "
            "with `make lab-up` and run this there"
        )
    if not visible:
        raise RuntimeError("No CUDA GPUs are available")
    phases = [parse_size(size) for size in options.memory.split(",")]
    print(f"training on {len(visible)} GPU(s): {' '.join(gpu.name for gpu in visible)}", flush=True)
    children = [_start_worker(visible, i, phases, options) for i in range(1, len(visible))]
    train(visible[0], phases, options)
    statuses = [_exit_status(pid) for pid in children]
    return int(any(statuses))


def _start_worker(
    visible: list[VisibleGpu], rank: int, phases: list[int], options: argparse.Namespace
) -> int:
    """Fork the process of one more GPU, and return its pid."""
    if (pid := os.fork()) == 0:
        train(visible[rank], phases, options)
        os._exit(0)
    return pid


def _exit_status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
