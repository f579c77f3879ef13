"""Measure cuDNN's workspaces for drawn convolutions.

    python convolutions.py SEED [near]

Run as a separate program by a Python with torch, so it imports nothing of RAD. It prints one JSON object:

    {"convolutions": [{"kind": "forward", "x": [8, 64, 56, 56], "y": ..., "area": 9, "groups": 1, "item_bytes": 4,
                       "strided": false, "workspace_bytes": ...}, ...]}

With "near" the shapes are near cuDNN's thresholds: few input channels, 1x1 kernels, strides.
The workspace of one pass is the peak of PyTorch's allocator in it, less what was allocated before and its result.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

COUNT = 260
LIMIT_S = 45.0
MOST_ELEMENTS = 1 << 28  # of input or output: a GiB in fp32


def convolutions(seed: int, *, near: bool = False) -> list[dict[str, Any]]:
    """Draw convolutions as in image networks, with at most about 1 GiB of input and output.

    Args:
        seed: Determines all of them.
        near: Whether to draw only near cuDNN's thresholds.

    Returns:
        Shapes `x` (batch, channels, sides) and `w` (out channels, in channels per group, sides), `stride`, `padding`,
        `groups`, `bias`, `input_gradient` and `dtype`.
    """
    draw = random.Random(seed)
    found: list[dict[str, Any]] = []
    while len(found) < COUNT:
        channels = (16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 768, 1024, 2048)
        ins = draw.choice((*channels, 3, 3, draw.randint(2, 600)))
        outs = draw.choice((*channels, draw.randint(2, 600)))
        kernel = draw.choice(
            ([1, 1], [1, 1], [3, 3], [3, 3], [3, 3], [5, 5], [7, 7], [1, 7], [7, 1], [2, 2], [4, 4], [11, 11])
        )
        stride = draw.choice((1, 1, 1, 2, 2, 4 if max(kernel) >= 4 else 1))
        side = draw.choice((7, 8, 14, 16, 17, 28, 32, 35, 56, 64, 71, 73, 112, 128, 147, 149, 224))
        batch = draw.choice((1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 100, 128, 192, 256))
        groups = 1
        style = draw.random()
        if style < 0.12:
            outs = groups = ins
        elif style < 0.2 and ins % 8 == 0 and outs % 8 == 0:
            groups = draw.choice((2, 4, 8))
        if near:
            groups = 1
            ins, outs, kernel, stride = _near(draw)
        pad = [k // 2 for k in kernel] if draw.random() < 0.85 else [0, 0]
        small = min(side + 2 * pad[at] - kernel[at] for at in (0, 1)) < 0
        elements = batch * max(ins * side * side, outs * side * side // stride**2)
        if small or elements > MOST_ELEMENTS or ins * outs // groups * kernel[0] * kernel[1] > 30_000_000:
            continue
        found.append(
            {
                "x": [batch, ins, side, side],
                "w": [outs, ins // groups, *kernel],
                "stride": stride,
                "padding": pad,
                "groups": groups,
                "bias": draw.random() < 0.4,
                "input_gradient": draw.random() < 0.85,
                "dtype": draw.choice(("float32", "float32", "float16", "bfloat16")),
            }
        )
    return found


def _near(draw: random.Random) -> tuple[int, int, list[int], int]:
    """Draw input and output channels, kernel and stride near the thresholds."""
    about = draw.randrange(3)
    if about == 0:  # images: few input channels
        kernel = draw.choice(([2, 2], [3, 3], [4, 4], [5, 5], [1, 7], [7, 7], [8, 8], [11, 11]))
        return draw.randint(1, 12), draw.choice((16, 32, 48, 64, 96, 128, 256)), kernel, draw.choice((1, 2))
    if about == 1:  # a strided product of matrices
        return 8 * draw.randint(2, 40), 8 * draw.randint(2, 80), [1, 1], 2
    return 8 * draw.randint(2, 80), 8 * draw.randint(2, 80), [1, 1], 1


def passes(call: dict[str, Any]) -> list[dict[str, Any]]:
    """Run one convolution's passes and return the workspace of each."""
    import torch

    aten = torch.ops.aten
    made = {"device": "cuda", "dtype": getattr(torch, call["dtype"])}
    x, w = torch.zeros(call["x"], **made), torch.zeros(call["w"], **made)
    stride, padding, groups = [call["stride"]] * 2, call["padding"], call["groups"]
    y, forward_bytes = with_workspace(
        lambda: aten.convolution(x, w, None, stride, padding, [1, 1], False, [0, 0], groups)
    )
    found = {"forward": forward_bytes}
    for at, kind in enumerate(("data", "weight")):
        _, found[kind] = with_workspace(
            partial(_gradient, at, y, x, w, (stride, padding, [1, 1], False, [0, 0], groups)), another=y
        )
    row = {
        "x": call["x"],
        "y": list(y.shape),
        "area": call["w"][2] * call["w"][3],
        "groups": groups,
        "item_bytes": x.element_size(),
        "strided": call["stride"] > 1,
    }
    return [row | {"kind": kind, "workspace_bytes": n_bytes} for kind, n_bytes in found.items()]


def _gradient(at: int, y: Any, x: Any, w: Any, settings: tuple[Any, ...]) -> Any:
    """Return only the gradient of the input (0) or of the weight (1)."""
    import torch

    mask = [at == 0, at == 1, False]
    return torch.ops.aten.convolution_backward(torch.zeros_like(y), x, w, None, *settings, mask)[at]


def with_workspace(call: Callable[[], Any], *, another: Any = None) -> tuple[Any, int]:
    """Return a call's result, and its peak bytes beyond that and a tensor as large as `another`.

    Args:
        call: Runs the pass and returns its result.
        another: A tensor; the call makes another of the same size.
    """
    import torch

    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = call()
    torch.cuda.synchronize()
    own = sum(_bytes_of(tensor) for tensor in (out, another) if tensor is not None)
    return out, max(0, torch.cuda.max_memory_allocated() - before - own)


def _bytes_of(tensor: Any) -> int:
    """Return the allocator's size for a tensor: whole blocks of 512 bytes."""
    n_bytes: int = tensor.numel() * tensor.element_size()
    return -(-n_bytes // 512) * 512


def main() -> None:
    """Measure one seed's convolutions and print them."""
    import torch

    found: list[dict[str, Any]] = []
    end = time.monotonic() + LIMIT_S
    for call in convolutions(int(sys.argv[1]), near="near" in sys.argv[2:]):
        if time.monotonic() > end:
            break
        if call["groups"] == call["x"][1] > 1:
            continue  # depthwise ones run in place
        try:
            found += passes(call)
        except RuntimeError:  # a shape that cuDNN refuses, or too little GPU memory for it
            torch.cuda.empty_cache()
    print(json.dumps({"convolutions": found}))


if __name__ == "__main__":
    main()
