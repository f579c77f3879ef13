"""Record the allocator's state after each optimizer step of a measured script, in a file that is always complete.

bench/scripts/measured_scripts.py puts this first in the script's path, as its `sitecustomize`; the script is not
changed.
"""

from __future__ import annotations

import atexit
import json
import lzma
import os
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from gpu_campaign.history import History
from gpumemnet.tracing.script import startup_hook

FOLDER = "RAD_PEAKS_FOLDER"
"""Variable of the environment: where notes go. It also shows which processes the script started."""
GATE = "RAD_PEAKS_GATE"
"""Variable of the environment: a file for which the first use of the GPU waits. WAITING in FOLDER says that it does."""
WAITING = "waiting"
NOTED_STEPS = 12
"""Steps after which what the process holds is noted, both by PyTorch and by NVML."""
KEPT_STEPS = 3
"""Steps of which every allocation is kept: two, as a trace has them, and one to see that nothing changes."""
WRITTEN_EVERY_S = 0.2
PACKAGES = (
    *("torch", "torchvision", "timm", "transformers", "accelerate", "lightning", "peft", "bitsandbytes"),
    *("numpy", "triton"),
)


def install() -> None:
    """Wait for torch."""
    folder = os.environ[FOLDER]
    startup_hook.after_torch(folder, lambda: Notes(Path(folder)).watch())


class Notes:
    """One process' notes; a process without an optimizer writes none."""

    def __init__(self, folder: Path) -> None:
        import torch

        self._torch, self._folder, self._process = torch, folder, os.getpid()
        self._rank = os.environ.get("RANK", "0")
        self._history: History | None = None
        self._depth = self._steps = self._reserved = self._allocated = 0
        self._by_step: list[int] = []
        self._reserved_by_step: list[int] = []
        self._outside: list[int | None] = []
        self._third_s: float | None = None
        self._written_s = 0.0

    def watch(self) -> None:
        """Hear of the GPU's first use, of steps and of the end."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)
        self._torch.cuda._lazy_call(self._record)
        atexit.register(self._at_exit)

    def _record(self) -> None:
        if gate := os.environ.get(GATE):
            (self._folder / WAITING).touch()
            while not os.path.exists(gate):
                time.sleep(0.01)
        try:
            self._history = History()
        except Exception as exc:  # noqa: BLE001 - the peak is worth more than its history
            print(f"no history: {type(exc).__name__}: {exc}", file=sys.stderr)

    def _before(self, *_: Any) -> None:
        self._depth += 1
        if self._depth == 1 and self._history:
            self._history.mark("step")

    def _after(self, *_: Any) -> None:
        self._depth -= 1
        if self._depth:  # wrapped by another optimizer: one step
            return
        self._steps += 1
        if self._history:
            self._history.mark("forward")
        self._look()
        if self._steps <= NOTED_STEPS:
            self._note()
        if self._steps == KEPT_STEPS:
            self._third_s = time.time()
            self._keep_history()
        if time.monotonic() - self._written_s > WRITTEN_EVERY_S or self._steps <= KEPT_STEPS:
            self._write()

    def _look(self) -> None:
        """Keep the highest: a script may reset the allocator's own."""
        if self._torch.cuda.is_initialized():
            self._reserved = max(self._reserved, self._torch.cuda.max_memory_reserved())
            self._allocated = max(self._allocated, self._torch.cuda.max_memory_allocated())

    def _note(self) -> None:
        """Note the highest so far, what is reserved now, and what of the process NVML sees outside the allocator."""
        self._by_step.append(self._reserved)
        if self._torch.cuda.is_initialized():
            reserved_bytes = self._torch.cuda.memory_reserved()
            seen = _seen(self._torch.cuda.current_device())
            self._reserved_by_step.append(reserved_bytes)
            self._outside.append(None if seen is None else seen - reserved_bytes)

    def _keep_history(self) -> None:
        if self._history is None:
            return
        history, self._history = self._history, None
        try:
            packed = lzma.compress(json.dumps(history.to_json(), separators=(",", ":")).encode(), preset=2)
            (self._folder / f"history.{self._rank}.xz").write_bytes(packed)
        except Exception as exc:  # noqa: BLE001 - the peak is worth more than its history
            print(f"no history: {type(exc).__name__}: {exc}", file=sys.stderr)
        history.stop()

    def _at_exit(self) -> None:
        if os.getpid() == self._process and self._steps:
            self._look()
            self._write()

    def _write(self) -> None:
        self._written_s = time.monotonic()
        notes = {
            "process": self._process,
            "steps": self._steps,
            "third_step_s": self._third_s,
            "reserved_peak_bytes": self._reserved,
            "allocated_peak_bytes": self._allocated,
            "reserved_by_step_bytes": self._by_step,
            "held_by_step_bytes": self._reserved_by_step,
            "outside_by_step_bytes": self._outside,
            "python": sys.version.split()[0],
            "versions": {name: _version(name) for name in PACKAGES},
        }
        if self._torch.cuda.is_initialized():
            notes |= {
                "gpu": self._torch.cuda.get_device_name(),
                "cudnn": self._torch.backends.cudnn.version(),
                "alloc_retries": self._torch.cuda.memory_stats().get("num_alloc_retries"),
            }
        path = self._folder / f"notes.{self._rank}.json"
        draft = path.with_suffix(".part")
        draft.write_text(json.dumps(notes), encoding="utf-8")
        draft.replace(path)


def _seen(device: int) -> int | None:
    """Return what NVML says that this process holds, in bytes.

    Args:
        device: Index among the visible GPUs.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(visible[device] or device))
        rows = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return next((int(row.usedGpuMemory) for row in rows if row.pid == os.getpid()), None)
    except Exception:  # noqa: BLE001 - then only what is read from outside
        return None


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
