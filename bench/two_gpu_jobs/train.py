"""Train, and print the steps per second over each requested number of seconds: train.py WORKLOAD GPUS [RANK STORE].

On several GPUs it is one process that copies gradients, or, with RANK and STORE, one of as many processes under NCCL.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from gpu_campaign.training import TrainingLoop
from replay.job.training import step_all
from replay.workloads import config_of

from gpumemnet.learning.dataset.config import Configuration


def main() -> None:
    """Say "ready" after three steps, then answer each line, a number of seconds."""
    name, gpus = sys.argv[1], int(sys.argv[2])
    rank, store = (int(sys.argv[3]), sys.argv[4]) if len(sys.argv) > 3 else (None, "")
    torch.set_num_threads(1)
    if rank is not None:
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=gpus)
    config = Configuration.from_json(config_of(name)[0])
    parts = [
        TrainingLoop(config, torch.device(f"cuda:{k}")) for k in (range(gpus) if rank is None else [rank])
    ]
    for part in parts:
        part.prepare()
        part.load()
    for _ in range(3):
        step(parts, rank)
    print("ready", flush=True)
    for line in sys.stdin:
        seconds = torch.tensor([float(line)], device=parts[0].device)
        begin, steps = time.monotonic(), 0
        more = torch.ones(1, device=parts[0].device)
        while more.item():
            step(parts, rank)
            steps += 1
            more.fill_(float(time.monotonic() - begin < seconds.item()))
            if rank is not None:
                dist.broadcast(more, 0)  # both stop at the same step
        print(f"rate {steps / (time.monotonic() - begin)}", flush=True)


def step(parts: list[TrainingLoop], rank: int | None) -> None:
    """Train one step and wait for it."""
    if rank is None:
        step_all(parts)
    else:
        parts[0].step()
        assert parts[0].model is not None
        for parameter in parts[0].model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
    for part in parts:
        torch.cuda.synchronize(part.device)


if __name__ == "__main__":
    main()
