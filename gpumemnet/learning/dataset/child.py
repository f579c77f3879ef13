"""A process that trains configurations one after the other, and its talk with the runner over a pipe.

A child is forked from a parent that has imported PyTorch and never touched CUDA, so it starts in milliseconds and has
a CUDA context of its own. It may go on to a further configuration only if that loads the same libraries and if the
allocator has given back its last byte: what the card then shows for the process is what a fresh one would show.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.measure import train
from gpumemnet.learning.dataset.need import Need, estimate_need
from gpumemnet.learning.dataset.summaries import texts_on_device

PR_SET_PDEATHSIG, SIGKILL = 1, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One configuration to measure and how.

    Attributes:
        config: What to train.
        alone: Nobody else trains meanwhile.
        fresh: In a process that has run nothing before.
        busy_s: Seconds of further training for the activity counters; 0 for none. Needs `alone`.
        texts: Whether the summary texts are made on the GPU afterwards.
        build_on_cpu: See measure.train.
    """

    config: Configuration
    alone: bool = False
    fresh: bool = False
    busy_s: float = 0.0
    texts: bool = False
    build_on_cpu: bool | None = None

    def libraries(self) -> str:
        """Return which of CUDA's libraries the job loads, as far as the memory of its process depends on it."""
        family, style = self.config.family, self.config.style
        if self.fresh or family in ("recurrent", "real"):
            # cuDNN's recurrent layers keep their dropout state for as long as the process lives.
            return "fresh"
        if family == "unet":
            return "cudnn"
        if family in ("mlp", "recommender") or (family == "transformer" and "vit" not in style):
            return "cublas"
        return "cudnn and cublas"


def run_child(pipe: Connection, device_name: str) -> None:
    """Measure one configuration after the other, as the runner sends them; never returns.

    Args:
        pipe: Where jobs come from and answers go to.
        device_name: As PyTorch names it: "cuda:0".
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    torch.set_num_threads(1)
    # What the parent has loaded is never garbage: looking through it again and again would take most of the time.
    gc.freeze()
    device = torch.device(device_name)
    try:
        while (job := pipe.recv()) is not None:
            _measure(job, pipe, device)
            if not _clean(device):
                break
            pipe.send({"say": "idle"})
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass
    except Exception as exc:  # noqa: BLE001 - the guard of this process: every fault becomes a record
        where = traceback.extract_tb(exc.__traceback__)[-1]
        text = f"{type(exc).__name__}: {exc} ({os.path.basename(where.filename)}:{where.lineno})"
        pipe.send({"say": "result", "outcome": "error", "error": text[:600]})
        pipe.recv()
    finally:
        os._exit(0)


def _measure(job: Job, pipe: Connection, device: torch.device) -> None:
    """Say the rough need, wait for the grant, train, report, and stay until the last reading is taken."""
    begin = time.monotonic()
    need = estimate_need(job.config)
    estimated = time.monotonic()
    pipe.send({"say": "ready", "need_bytes": need.total_bytes})
    pipe.recv()
    granted = time.monotonic()
    if device.type == "cuda":
        torch.cuda.init()
        torch.cuda.synchronize()
    ready = time.monotonic()
    result = _train(job, need, pipe, device)
    result |= {
        "say": "result",
        "rough_need_bytes": need.total_bytes,
        "estimate_s": round(estimated - begin, 3),
        "context_s": round(ready - granted, 3),
        "train_s": round(time.monotonic() - ready, 3),
    }
    pipe.send(result)
    pipe.recv()
    if job.texts and result["outcome"] == "ok":
        torch.cuda.empty_cache()
        pipe.send({"say": "texts", "texts": texts_on_device(job.config, device)})
        pipe.recv()


def _train(job: Job, need: Need, pipe: Connection, device: torch.device) -> dict[str, Any]:
    try:
        return train(
            job.config,
            device,
            build_on_cpu=job.build_on_cpu,
            params=need.params,
            busy_s=job.busy_s,
            on_steady=lambda word: pipe.send({"say": word}),
        )
    except torch.OutOfMemoryError as exc:
        return {"outcome": "oom", "error": str(exc).split(". ")[0][:200]}


def _clean(device: torch.device) -> bool:
    """Give everything back; return whether nothing is left, so that the next run finds what a first one finds."""
    gc.collect()
    if device.type == "cuda":
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        stats = torch.cuda.memory_stats()
        return (
            stats["reserved_bytes.all.current"] == 0
            and not stats["num_ooms"]
            and not stats["num_alloc_retries"]
        )
    return True
