"""A workload's training as a plain script, for `rad-estimate -- python -m replay.script WORKLOAD`."""

from __future__ import annotations

import sys

import torch
from gpu_campaign.training import TrainingLoop

from gpumemnet.learning.dataset.config import Configuration
from replay.workloads import config_of


def main() -> None:
    """Train until ended."""
    config, _ = config_of(sys.argv[1])
    training = TrainingLoop(Configuration.from_json(config), torch.device("cuda"))
    training.prepare()
    training.load()
    while True:
        training.step()


if __name__ == "__main__":
    main()
