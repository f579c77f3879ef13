"""Process that trains configurations one by one, and its communication with the runner over a pipe.

A child is forked from a parent that has imported PyTorch but never used CUDA, so it starts in milliseconds and has a
separate CUDA context. It may continue with another configuration only if that loads the same libraries and if the
allocator has freed all memory: the GPU then reports the same for the process as for a fresh one.
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
from gpumemnet.learning.dataset.running.measure import train
from gpumemnet.learning.dataset.running.need import Need, estimate_need
from gpumemnet.learning.dataset.summaries import texts_on_device

PR_SET_PDEATHSIG, SIGKILL = 1, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementJob:
    """One configuration to measure, with options.

    Attributes:
        config: The configuration.
        alone: Whether no other run trains at the same time.
        fresh: Whether it needs a process that has run nothing before.
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
        """Return the CUDA libraries that the job loads, as far as its process' memory depends on them."""
        family, style = self.config.family, self.config.style
        if self.fresh or family in ("recurrent", "real"):
            # cuDNN's recurrent layers keep their dropout state until the process ends.
            return "fresh"
        if family == "unet":
            return "cudnn"
        if family in ("mlp", "recommender") or (family == "transformer" and "vit" not in style):
            return "cublas"
        return "cudnn and cublas"


def run_child(pipe: Connection, device_name: str) -> None:
    """Measure configurations as the runner sends them; never returns.

    Args:
        pipe: Receives jobs and sends results.
        device_name: Name in PyTorch: "cuda:0".
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    torch.set_num_threads(1)
    # Objects loaded by the parent are never garbage; scanning them repeatedly would take most of the time.
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
    except Exception as exc:  # noqa: BLE001 - last resort of this process: every fault becomes a record
        where = traceback.extract_tb(exc.__traceback__)[-1]
        text = f"{type(exc).__name__}: {exc} ({os.path.basename(where.filename)}:{where.lineno})"
        pipe.send({"say": "result", "outcome": "error", "error": text[:600]})
        pipe.recv()
    finally:
        os._exit(0)


def _measure(job: MeasurementJob, pipe: Connection, device: torch.device) -> None:
    """Send the rough need, wait for the grant, train, report, and stay until the last reading."""
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


def _train(job: MeasurementJob, need: Need, pipe: Connection, device: torch.device) -> dict[str, Any]:
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
    """Free everything; return whether nothing is left, so that the next run starts like a first one."""
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
