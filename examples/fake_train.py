#!/usr/bin/env python3
"""A training that runs on simulated GPUs: it takes memory step by step, keeps SMs busy, and fails as PyTorch does.

It sees GPUs as a CUDA program does: those that CUDA_VISIBLE_DEVICES names, by UUID or by index, each with the memory
that CUDA_MPS_PINNED_DEVICE_MEM_LIMIT leaves it. Where the simulated cards are is told by RAD_SIMULATED_GPUS.

    python3 fake_train.py --memory 12G --seconds 5
    python3 fake_train.py --memory 3G,18G --seconds 8      # 3 GiB in the first half, 18 GiB in the second
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from slurm_plugin.core.units import GIB, MIB, parse_size
from slurm_plugin.monitor.simulated import Card, CardFullError, SimulatedGpus

CONTEXT_BYTES = 512 * MIB
"""What a process holds before its first tensor; 740 to 760 MiB were seen with PyTorch on an H200."""

STEP_S = 0.2


class OutOfMemoryError(RuntimeError):
    """What PyTorch 2.x raises; its traceback names it torch.OutOfMemoryError."""


OutOfMemoryError.__module__ = "torch"


class FakeGpu:
    """One GPU as this process sees it."""

    def __init__(self, gpus: SimulatedGpus, card: Card, *, ordinal: int, cap_bytes: int | None) -> None:
        self.card = card
        self._gpus, self._ordinal, self._cap_bytes = gpus, ordinal, cap_bytes
        self._held_bytes = 0

    def grow_to(self, memory_bytes: int, *, smact: float) -> None:
        """Hold so much memory, or fail in PyTorch's words."""
        try:
            self._gpus.hold(self.card.uuid, memory_bytes, cap_bytes=self._cap_bytes, smact=smact)
        except CardFullError as full:
            wanted = memory_bytes - self._held_bytes
            raise OutOfMemoryError(self._words(wanted, full)) from None
        self._held_bytes = memory_bytes

    def _words(self, wanted: int, full: CardFullError) -> str:
        """Return the message of PyTorch 2.x (c10/cuda/CUDACachingAllocator.cpp, AllocatorConfig's hint left as is)."""
        held = self._held_bytes
        return (
            f"CUDA out of memory. Tried to allocate {_size(wanted)}. GPU {self._ordinal} has a total capacity of "
            f"{_size(full.total_bytes)} of which {_size(full.free_bytes)} is free. Including non-PyTorch memory, this "
            f"process has {_size(held)} memory in use. Of the allocated memory {_size(max(0, held - CONTEXT_BYTES))} "
            f"is allocated by PyTorch, and {_size(0)} is reserved by PyTorch but unallocated. If reserved but "
            "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
            "fragmentation.  See documentation for Memory Management  "
            "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
        )


def _size(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.2f} GiB" if n_bytes >= GIB else f"{n_bytes / MIB:.2f} MiB"


def visible_gpus(gpus: SimulatedGpus, environment: dict[str, str]) -> list[FakeGpu]:
    """Return the GPUs that CUDA would show this process, in its order; unknown names end the list, as in CUDA."""
    cards = gpus.cards()
    tokens = environment.get("CUDA_VISIBLE_DEVICES", ",".join(str(card.index) for card in cards)).split(",")
    caps = _caps(environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""))
    seen: list[FakeGpu] = []
    for token in tokens:
        card = next((card for card in cards if token.strip() in (card.uuid, str(card.index))), None)
        if card is None:
            break
        seen.append(FakeGpu(gpus, card, ordinal=len(seen), cap_bytes=caps.get(len(seen))))
    return seen


def _caps(text: str) -> dict[int, int]:
    """Return the limits in a text such as "0=4G,1=8G", by the device's number in this process."""
    pairs = [part.partition("=") for part in text.split(",") if "=" in part]
    return {int(ordinal): parse_size(size) for ordinal, _, size in pairs}


def train(gpus: list[FakeGpu], *, phases: list[int], seconds: float, smact: float) -> None:
    """Hold each phase's memory for an equal share of the time; all GPUs alike, as in data-parallel training."""
    if len(gpus) > 1:
        raise SystemExit("one process trains on one GPU; start one per GPU, as torchrun does")
    gpu = gpus[0]
    gpu.grow_to(CONTEXT_BYTES, smact=0.0)
    for phase, memory_bytes in enumerate(phases):
        gpu.grow_to(max(memory_bytes, CONTEXT_BYTES), smact=smact)
        end_s = time.monotonic() + seconds / len(phases)
        while time.monotonic() < end_s:
            time.sleep(STEP_S)
        print(
            f"phase {phase + 1} of {len(phases)} done, {_size(memory_bytes)} on {gpu.card.uuid}", flush=True
        )


def main() -> int:
    """Train, and return the exit status."""
    parser = argparse.ArgumentParser(description="A training on simulated GPUs.")
    parser.add_argument("--memory", default="2G", help="memory at each phase, such as 4G or 3G,18G")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long all phases take together")
    parser.add_argument("--smact", type=float, default=0.3, help="share of SMs kept busy, 0 to 1")
    options = parser.parse_args()
    folder = os.environ.get("RAD_SIMULATED_GPUS")
    if folder is None:
        parser.error(
            "RAD_SIMULATED_GPUS is not set: start a private Slurm with `make lab-up` and run this there"
        )
    gpus = SimulatedGpus(Path(folder, os.environ.get("SLURMD_NODENAME", "")))
    visible = visible_gpus(gpus, dict(os.environ))
    if not visible:
        raise RuntimeError("No CUDA GPUs are available")
    phases = [parse_size(size) for size in options.memory.split(",")]
    print(f"training on {len(visible)} GPU(s): {' '.join(gpu.card.uuid for gpu in visible)}", flush=True)
    children = [_start_worker(visible, i, phases, options) for i in range(1, len(visible))]
    train(visible[:1], phases=phases, seconds=options.seconds, smact=options.smact)
    statuses = [_exit_status(pid) for pid in children]
    return int(any(statuses))


def _start_worker(visible: list[FakeGpu], rank: int, phases: list[int], options: argparse.Namespace) -> int:
    """Fork the process of one more GPU, and return its pid."""
    if (pid := os.fork()) == 0:
        train([visible[rank]], phases=phases, seconds=options.seconds, smact=options.smact)
        os._exit(0)
    return pid


def _exit_status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
