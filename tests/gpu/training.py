"""A real PyTorch training on synthetic data that reports its progress: python training.py PROGRESS_FILE [options].

Each line of the progress file is "seconds since the epoch, images so far", written after a synchronisation, so that
rates and the longest pause between two reports can be read off. Ends with status 1 and PyTorch's own message when it
runs out of memory.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("progress", type=Path)
    parser.add_argument("--model", default="resnet18", help="a torchvision model")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=64, help="images are SIZE x SIZE")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--report-every", type=int, default=5, help="steps")
    parser.add_argument(
        "--grab-gib", type=float, default=0.0, help="after 20 steps, hold so much more memory"
    )
    options = parser.parse_args()

    import torch
    import torchvision

    torch.manual_seed(0)
    model = getattr(torchvision.models, options.model)(num_classes=100).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(options.batch, 3, options.size, options.size, device="cuda")
    labels = torch.randint(0, 100, (options.batch,), device="cuda")
    loss_of = torch.nn.CrossEntropyLoss()
    allocated = []
    end_s = time.time() + options.seconds
    with options.progress.open("w", buffering=1) as progress:
        for step in range(options.steps):
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=options.amp):
                loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (step + 1) % options.report_every == 0:
                torch.cuda.synchronize()
                progress.write(f"{time.time():.6f} {(step + 1) * options.batch}\n")
                if time.time() > end_s:
                    break
            if step == 20 and options.grab_gib:
                allocated.append(torch.empty(int(options.grab_gib * 2**30), dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()
    print(f"done: {loss.item():.3f}, peak {torch.cuda.max_memory_reserved() >> 20} MiB reserved")


if __name__ == "__main__":
    main()
