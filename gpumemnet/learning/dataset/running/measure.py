"""Train one configuration for a few steps, and record the numbers of PyTorch's allocator."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.learning.dataset.catalogue import workload
from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.workload import Workload, loss_of, make_inputs, make_tensor
from gpumemnet.names import Optimizer, Precision

STEPS = 4
"""Optimizer states exist from the first step on, so the second has the full peak; two more prove that it is stable."""
SLOW_AFTER_S = 1.0
"""Seconds after which a run stops at three good steps."""
SMALL_MODEL_PARAMS = 20_000_000
"""Models up to this size are built on the CPU and moved, as in scripts; larger ones on the GPU, which is fast."""

Report = Callable[[str], None]


class PhasePeaks:
    """Allocator peaks of forward, backward and optimizer step over all steps."""

    def __init__(self) -> None:
        self.allocated: dict[str, int] = {}
        self.reserved = 0

    def close(self, phase: str) -> None:
        """End a phase: record its peak and start the next one."""
        peak = torch.cuda.max_memory_allocated()
        self.allocated[phase] = max(peak, self.allocated.get(phase, 0))
        self.reserved = max(self.reserved, torch.cuda.max_memory_reserved())
        torch.cuda.reset_peak_memory_stats()


def make_optimizer(config: Configuration, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer with PyTorch's defaults plus the configuration's settings.

    Args:
        config: Gives the optimizer and its implementation.
        model: The model to optimize.
    """
    how: dict[str, Any] = {
        "default": {},
        "foreach": {"foreach": True},
        "forloop": {"foreach": False},
        "fused": {"fused": True},
    }[config.implementation]
    rate = 1e-4
    params = model.parameters()
    if config.optimizer is Optimizer.SGD:
        return torch.optim.SGD(params, lr=rate, **how)
    if config.optimizer is Optimizer.SGD_MOMENTUM:
        return torch.optim.SGD(params, lr=rate, momentum=0.9, **how)
    if config.optimizer is Optimizer.ADAM:
        return torch.optim.Adam(params, lr=rate, **how)
    if config.optimizer is Optimizer.ADAMW:
        return torch.optim.AdamW(params, lr=rate, **how)
    if config.optimizer is Optimizer.RMSPROP:
        return torch.optim.RMSprop(params, lr=rate, **how)
    return torch.optim.Adafactor(params, lr=rate, **how)


def build_model(config: Configuration, work: Workload, device: torch.device, on_cpu: bool) -> nn.Module:
    """Return the model on the device, with parameters in the dtype of the precision.

    Args:
        config: Gives the precision.
        work: Builds the model.
        device: Its device.
        on_cpu: Whether to build it on the CPU first, so that building leaves nothing on the device.
    """
    dtype = torch.bfloat16 if config.precision is Precision.BF16 else torch.float32
    if on_cpu:
        model = work.build().to(device=device, dtype=dtype)
    else:
        torch.set_default_dtype(dtype)
        with device:
            model = work.build()
        torch.set_default_dtype(torch.float32)
        # Some create a tensor of a named type, which is on the CPU.
        model = model.to(device=device, dtype=dtype)
    if config.gradient_checkpointing:
        work.set_checkpointing(model)
    return model.train()


def _keep_busy(step: Callable[[], None], busy_s: float, on_steady: Report | None) -> None:
    """Train for some seconds more, if any, and say before that it begins."""
    if not busy_s:
        return
    if on_steady is not None:
        on_steady("steady")
    end = time.monotonic() + busy_s
    while time.monotonic() < end:
        step()


def train(
    config: Configuration,
    device: torch.device,
    *,
    build_on_cpu: bool | None = None,
    params: int = 0,
    busy_s: float = 0.0,
    on_steady: Report | None = None,
) -> dict[str, Any]:
    """Train a few steps and return the measurements; memory errors are passed to the caller.

    Args:
        config: The configuration.
        device: The device; allocator numbers are None without a GPU.
        build_on_cpu: Build the model on the CPU and move it; None decides by its size.
        params: Number of parameters, for that decision.
        busy_s: Seconds of further training after the counted steps, for the activity counters.
        on_steady: Called when that time begins.
    """
    cuda = device.type == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = config.precision is Precision.TF32
    torch.manual_seed(config.seed * 1_000_003 + config.index)
    work = workload(config)
    on_cpu = params <= SMALL_MODEL_PARAMS if build_on_cpu is None else build_on_cpu
    peaks = PhasePeaks()
    model = build_model(config, work, device, on_cpu)
    after_build = torch.cuda.memory_allocated() if cuda else None
    dtype = torch.bfloat16 if config.precision is Precision.BF16 else torch.float32
    args, kwargs = make_inputs(work, config.batch_size, device, dtype)
    target = None if work.target is None else make_tensor(work.target, config.batch_size, device, dtype)
    optimizer = make_optimizer(config, model)
    amp = config.precision is Precision.AMP
    # A small initial scale: no step is skipped for overflow, so the optimizer's states exist after the first.
    scaler = torch.amp.GradScaler(device.type, init_scale=64.0, enabled=amp)
    if cuda:
        peaks.close("build")
    times: list[float] = []
    reserved: list[int] = []
    skipped = 0
    after_step = None
    output: Any = None
    loss: Tensor | None = None

    def step() -> None:
        # `output` and `loss` of one step live until the next replaces them, as in a plain training loop.
        nonlocal output, loss, skipped, after_step
        begin = time.monotonic()
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.float16 if cuda else torch.bfloat16, enabled=amp):
            output = model(*args, **kwargs)
            loss = loss_of(work, output, target)
        if cuda:
            peaks.close("forward")
        scaler.scale(loss).backward()
        if cuda:
            peaks.close("backward")
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < scale
        if cuda:
            torch.cuda.synchronize()
            peaks.close("step")
            after_step = torch.cuda.memory_allocated()
            reserved.append(torch.cuda.memory_reserved())
        times.append(time.monotonic() - begin)

    begin = time.monotonic()
    while len(times) - skipped < STEPS and len(times) < 3 * STEPS:
        step()
        if time.monotonic() - begin > SLOW_AFTER_S and len(times) - skipped >= 3:
            break
    counted = len(times)
    _keep_busy(step, busy_s, on_steady)
    assert loss is not None
    result: dict[str, Any] = {
        "outcome": "ok",
        "steps": counted,
        "skipped_steps": skipped,
        "loss_finite": bool(torch.isfinite(loss.detach()).item()),
        "step_time_s": round(statistics.median(times[1:]), 6),
        "built_on": "cpu" if on_cpu else "gpu",
        "params": sum(p.numel() for p in model.parameters()),
        "param_tensors": sum(1 for _ in model.parameters()),
        "buffer_bytes": sum(b.numel() * b.element_size() for b in model.buffers()),
    }
    if cuda:
        stats = torch.cuda.memory_stats()
        result |= {
            "allocated_peak_bytes": max(peaks.allocated.values()),
            "reserved_peak_bytes": max(peaks.reserved, torch.cuda.max_memory_reserved()),
            "reserved_end_bytes": torch.cuda.memory_reserved(),
            "allocated_after_build_bytes": after_build,
            "allocated_after_step_bytes": after_step,
            "reserved_by_step_bytes": reserved[:counted],
            "phase_peak_bytes": dict(peaks.allocated),
            "cudnn": torch.backends.cudnn.version(),
            "num_alloc_retries": stats["num_alloc_retries"],
            "num_ooms": stats["num_ooms"],
        }
    return result
