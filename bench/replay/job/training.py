"""A real training: PyTorch on the GPUs that the job was given, a loader's pace, a fixed number of steps."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from gpu_campaign.training import TrainingLoop

from gpumemnet.learning.dataset.config import Configuration
from replay.job.exchange import EXCHANGES, Replicas
from replay.job.record import Loader, Record

WANTED = (
    "torchvision.models",
    "timm",
    "transformers.models.bert",
    "transformers.models.gpt2",
    "transformers.models.xlnet",
)
"""Imported before any job comes, where they are."""


def warm_up() -> None:
    """Import what trainings need; nothing may touch a GPU before the fork."""
    for name in WANTED:
        try:
            importlib.import_module(name)
        except Exception as exc:  # noqa: BLE001 - a library that does not fit its torch fails in any way
            print(f"without {name}: {exc}"[:300], flush=True)
    # One model of each library is built here, on no device, so that lazy imports are over.
    from gpu_campaign.plan import named

    from replay.workloads import config_of

    first = {config["arch"].get("source"): name for name, config in named().items()}
    for workload in first.values():
        try:
            config, _ = config_of(workload)
            with torch.device("meta"):
                TrainingLoop(Configuration.from_json(config), torch.device("meta")).prepare()
        except Exception as exc:  # noqa: BLE001 - only a rehearsal
            print(f"{workload}: {exc}"[:300], flush=True)


def train(job: dict[str, Any], *, called_s: float) -> int:
    """Train; return the exit status."""
    record = Record(job, called_s=called_s)
    try:
        _train(job, record)
    except RuntimeError as exc:  # PyTorch's OutOfMemoryError is one, and so is what CUDA itself refuses
        if "out of memory" not in str(exc):
            record.close("failed")
            raise
        print(f"torch.{type(exc).__name__}: {exc}", flush=True)
        record.close("oom", **_memory())
        return 1
    record.close("ok", **_memory())
    return 0


def _train(job: dict[str, Any], record: Record) -> None:
    torch.set_num_threads(1)
    names = [f"cuda:{k}" for k in range(job["gpus"])] if torch.cuda.is_available() else ["cpu"]
    if len(names) > torch.cuda.device_count() and names != ["cpu"]:
        raise SystemExit(f"{job['gpus']} GPUs wanted, {torch.cuda.device_count()} seen")
    parts = [TrainingLoop(Configuration.from_json(job["config"]), torch.device(name)) for name in names]
    for part in parts:
        part.prepare()
        part.load()
    record.note("loaded_s")
    exchange = EXCHANGES[job["exchange"]]
    step_all(parts, exchange)
    for part in parts:
        part.wait()
    record.note("trains_s")
    loader = Loader(job["period_s"])
    before: list[Any] = []
    for _ in range(job["steps"]):
        loader.wait()
        step_all(parts, exchange)
        # One step is always issued ahead, as when a loss is read a step late.
        if parts[0].cuda:
            events = [torch.cuda.Event() for _ in parts]
            for event, part in zip(events, parts, strict=True):
                event.record(torch.cuda.current_stream(part.device))
            _ended(before, record)
            before = events
        else:
            record.ends.append(time.monotonic())
    _ended(before, record)


def _ended(events: list[Any], record: Record) -> None:
    for event in events:
        event.synchronize()
    if events:
        record.ends.append(time.monotonic())


def step_all(parts: list[TrainingLoop], exchange: Callable[[Replicas], None]) -> None:
    """Train one step on every GPU, then let the replicas agree on one gradient, as data-parallel training does."""
    if len(parts) == 1:
        parts[0].step()
        return
    for part in parts:
        with torch.cuda.device(part.device):
            part.step()
    exchange([[p.grad for p in part.model.parameters() if p.grad is not None] for part in parts])


def _memory() -> dict[str, Any]:
    if not torch.cuda.is_available():
        return {}
    count = range(torch.cuda.device_count())
    return {"reserved_peak_mib": [torch.cuda.max_memory_reserved(k) >> 20 for k in count]}


os.environ.setdefault(
    "PYTORCH_NVML_BASED_CUDA_CHECK", "1"
)  # looking for a GPU must not touch CUDA before a fork
