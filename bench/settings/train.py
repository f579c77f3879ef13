"""Train one network under one setting of PyTorch: python bench/settings/train.py NETWORK [OPTIONS].

It knows nothing of RAD: `bench/scripts/measured_scripts.py` measures it and `rad-estimate -- python ...` traces it, as
any other script. Networks are of torchvision and of networks.py next to this, with drawn weights; one batch of noise
stays on the GPU.
"""

from __future__ import annotations

import argparse

import networks
import torch


def main() -> None:
    """Train some steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--precision", choices=("fp32", "amp", "bf16"), default="fp32")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--benchmark", action="store_true")
    parser.add_argument("--benchmark-limit", type=int)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--tf32", action="store_true", help="in products of matrices too")
    parser.add_argument("--no-tf32", action="store_true", help="not in convolutions either")
    parser.add_argument("--no-cudnn", action="store_true")
    parser.add_argument("--fraction", type=float, help="of the GPU's memory, for this process")
    parser.add_argument("--empty-cache", type=int, default=0, help="every so many steps")
    parser.add_argument(
        "--smaller", type=int, default=0, help="samples of every third batch, as at an epoch's end"
    )
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()

    device = torch.device(options.device)
    torch.backends.cudnn.benchmark = options.benchmark
    if options.benchmark_limit is not None:
        torch.backends.cudnn.benchmark_limit = options.benchmark_limit
    if options.deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
    if options.tf32:
        torch.backends.cuda.matmul.allow_tf32 = True
    if options.no_tf32:
        torch.backends.cudnn.allow_tf32 = False
    if options.no_cudnn:
        torch.backends.cudnn.enabled = False
    if options.fraction:
        torch.cuda.set_per_process_memory_fraction(options.fraction)

    torch.manual_seed(0)
    network = networks.NETWORKS[options.network]
    inputs, target = network.batch(options.batch)
    layout = torch.channels_last if inputs.dim() == 4 else torch.channels_last_3d
    model = network.build().train().to(device)
    if options.channels_last:
        model = model.to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, init_scale=64.0, enabled=options.precision == "amp")
    half = torch.bfloat16 if options.precision == "bf16" else torch.float16

    inputs, target = inputs.to(device), target.to(device)
    if options.channels_last:
        inputs = inputs.to(memory_format=layout)
    for step in range(options.steps):
        short = options.smaller and step % 3 == 2
        x, y = (inputs[: options.smaller], target[: options.smaller]) if short else (inputs, target)
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=half, enabled=options.precision != "fp32"):
            loss = network.loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if options.empty_cache and step % options.empty_cache == 0:
            torch.cuda.empty_cache()
        print(step, loss.item(), flush=True)


if __name__ == "__main__":
    main()
