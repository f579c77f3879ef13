"""One training that runs step by step: built on the CPU, loaded onto the GPU, stepped on command."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from gpumemnet.learning.dataset.catalogue import workload
from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.running.measure import SMALL_MODEL_PARAMS, build_model, make_optimizer
from gpumemnet.learning.dataset.workload import loss_of, make_inputs, make_tensor


class TrainingLoop:
    """A plain training loop over one batch of random values that stays on the GPU."""

    def __init__(self, config: Configuration, device: torch.device) -> None:
        self.config, self.device = config, device
        self.detection = config.arch.get("source") == "detection"
        self.cuda = device.type == "cuda"
        self.model: nn.Module | None = None
        self.output: Any = None
        self.loss: Any = None

    def prepare(self) -> None:
        """Do what needs no GPU: build small models in host memory. Large ones are built on the GPU, in load()."""
        torch.manual_seed(self.config.seed * 1_000_003 + self.config.index)
        if self.detection:
            self.model = _detection(self.config.arch["name"]).train()
            return
        self.work = workload(self.config)
        dtype = torch.bfloat16 if self.config.precision == "bf16" else torch.float32
        try:
            with torch.device("meta"):
                params = sum(p.numel() for p in self.work.build().parameters())
        except Exception:  # noqa: BLE001 - some real models look at values while they are built
            params = 0
        self.params = params
        if params <= SMALL_MODEL_PARAMS:
            self.model = self.work.build().to(dtype=dtype)
            if self.config.gradient_checkpointing:
                self.work.set_checkpointing(self.model)

    def load(self) -> None:
        """Put model, batch and optimizer onto the device."""
        config, device = self.config, self.device
        torch.backends.cuda.matmul.allow_tf32 = config.precision == "tf32"
        self.dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        if self.model is None:
            self.model = build_model(config, self.work, device, on_cpu=False)
        else:
            self.model = self.model.to(device).train()
        self.params = sum(p.numel() for p in self.model.parameters())
        if self.detection:
            self.batch = _pictures(config, device)
        else:
            self.args, self.kwargs = make_inputs(self.work, config.batch_size, device, self.dtype)
            self.target = (
                None
                if self.work.target is None
                else make_tensor(self.work.target, config.batch_size, device, self.dtype)
            )
        self.optimizer = make_optimizer(config, self.model)
        self.amp = config.precision == "amp"
        self.scaler = torch.amp.GradScaler(device.type, init_scale=64.0, enabled=self.amp)

    def step(self) -> None:
        """Train one step; returns when the work is issued, not when the GPU has done it."""
        self.optimizer.zero_grad()
        half = torch.float16 if self.cuda else torch.bfloat16
        with torch.autocast(self.device.type, dtype=half, enabled=self.amp):
            if self.detection:
                self.loss = sum(self.model(*self.batch).values())
            else:
                self.output = self.model(*self.args, **self.kwargs)
                self.loss = loss_of(self.work, self.output, self.target)
        self.scaler.scale(self.loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def wait(self) -> None:
        """Wait until the GPU has done all."""
        if self.cuda:
            torch.cuda.synchronize()

    def warm_up(self, least_steps: int, least_s: float, most_s: float) -> float:
        """Train some steps; return the seconds of the last one, waited for.

        Args:
            least_steps: At least so many.
            least_s: And at least for this long.
            most_s: But no more steps after this long, once there were two.
        """
        begin, done, last = time.monotonic(), 0, 0.0
        while True:
            at = time.monotonic()
            self.step()
            self.wait()
            done, last = done + 1, time.monotonic() - at
            spent = time.monotonic() - begin
            if (done >= least_steps and spent >= least_s) or (done >= 2 and spent >= most_s):
                return last


def _detection(name: str) -> nn.Module:
    import torchvision

    model: nn.Module = torchvision.models.get_model(name, weights=None, weights_backbone=None)
    return model


def _pictures(config: Configuration, device: torch.device) -> tuple[list[torch.Tensor], list[dict[str, Any]]]:
    """Return images with three objects each, as torchvision's detectors want them."""
    size = config.arch["size"]
    images = [torch.rand(3, size, size, device=device) for _ in range(config.batch_size)]
    targets = []
    for _ in images:
        low = torch.rand(3, 2, device=device) * size * 0.4
        boxes = torch.cat([low, low + size * (0.2 + 0.3 * torch.rand(3, 2, device=device))], 1)
        masks = torch.zeros(3, size, size, dtype=torch.uint8, device=device)
        masks[:, size // 4 : size // 2, size // 4 : size // 2] = 1
        targets.append({"boxes": boxes, "labels": torch.randint(1, 91, (3,), device=device), "masks": masks})
    return images, targets
