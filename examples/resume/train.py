"""A PyTorch training that may be stopped at any moment and comes to the same weights.

    python3 train.py --checkpoints FOLDER [--steps 2000] [--every 200]

What a step depends on is in the checkpoint: weights, the optimizer's state, the random numbers, and which step it is.
The data of a step follow from its number; with a DataLoader, seed its sampler by the epoch and skip what is done.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from checkpoint import Slot, newest, save
from torch import nn

BATCH, CLASSES = 64, 10


def model() -> nn.Module:
    """Return a small network of images, with dropout: random numbers matter."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(64, CLASSES),
    )


def batch_of(step: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images (64 x 3 x 32 x 32) and classes (64) of a step."""
    numbers = torch.Generator().manual_seed(step)
    images = torch.randn(BATCH, 3, 32, 32, generator=numbers)
    return images.to(device), torch.randint(CLASSES, (BATCH,), generator=numbers).to(device)


class Training:
    """What is trained, and how it is kept."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model().to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.step = 0

    def one_step(self) -> float:
        """Train on the next batch and return its loss."""
        images, classes = batch_of(self.step, self.device)
        loss = nn.functional.cross_entropy(self.model(images), classes)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state() if self.device.type == "cuda" else None,
        }

    def load(self, path: Path) -> None:
        """Go on from a checkpoint."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["random_cuda"])


def main() -> None:
    """Train from the newest checkpoint to the last step."""
    parser = argparse.ArgumentParser(description="A training that may be stopped at any moment.")
    parser.add_argument("--checkpoints", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", type=int, default=200, help="steps between two checkpoints")
    options = parser.parse_args()

    slot = Slot()
    training = Training()
    if (path := newest(options.checkpoints)) is not None:
        training.load(path)
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    print(f"from step {training.step}, restarts: {restarts}", flush=True)
    while training.step < options.steps:
        loss = training.one_step()
        over = slot.is_over and training.step < options.steps
        if over or training.step % options.every == 0 or training.step == options.steps:
            save(options.checkpoints, training.step, lambda file: torch.save(training.state(), file))
            print(f"step {training.step} saved, loss {loss:.4f}", flush=True)
        if over:
            slot.come_back()
    print(f"done, {training.step} steps", flush=True)


if __name__ == "__main__":
    main()
