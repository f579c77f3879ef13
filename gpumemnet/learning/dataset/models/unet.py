"""U-Nets: plain and residual, with transposed convolutions or bilinear upsampling."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.learning.dataset.config import TensorSpec
from gpumemnet.learning.dataset.draw import Draw, Drawn
from gpumemnet.learning.dataset.models.layers import activation, run_blocks

STYLES = ("plain", "residual")
LOSS = "cross_entropy"


def draw(d: Draw, style: str) -> Drawn:
    """Draw levels, width, image size, norm and upsampling; arguments as for `cnn.draw`."""
    levels = d.integer(2, 5)
    arch: dict[str, Any] = {
        "size": d.choice((64, 96, 128, 160, 192, 256, 320, 384, 512)) // 2**levels * 2**levels,
        "channels": d.choice((1, 3)),
        "classes": d.integer(2, 21),
        "base": d.log_integer(8, 96, 8),
        "levels": levels,
        "convs": d.integer(1, 3),
        "norm": d.choice(("batch", "batch", "group", "none")),
        "activation": d.choice(("relu", "relu_inplace", "leaky_relu", "silu", "gelu")),
        "upsample": d.choice(("transposed", "bilinear")),
    }
    per_conv = 1 + (arch["norm"] != "none") + (not arch["activation"].endswith("inplace"))
    elements, params = arch["size"] ** 2 * (arch["channels"] + 2 * arch["classes"]), 0.0
    for i in range(levels + 1):
        width, pixels = arch["base"] * 2**i, (arch["size"] / 2**i) ** 2
        elements += width * pixels * (2 * arch["convs"] * per_conv + 4)
        params += width**2 * 9 * 3 * arch["convs"]
    return Drawn(
        arch=arch, elements_per_sample=elements, params=params, batch_range=(1, 256), checkpointable=True
    )


class Convolutions(nn.Module):
    """A few 3x3 convolutions, with a residual connection or without."""

    def __init__(self, width: int, out: int, residual: bool, arch: dict[str, Any]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(arch["convs"]):
            layers.append(nn.Conv2d(width if i == 0 else out, out, 3, padding=1, bias=arch["norm"] == "none"))
            if arch["norm"] == "batch":
                layers.append(nn.BatchNorm2d(out))
            elif arch["norm"] == "group":
                layers.append(nn.GroupNorm(8 if out % 8 == 0 else 1, out))
            layers.append(activation(arch["activation"]))
        self.body = nn.Sequential(*layers)
        self.skip = nn.Conv2d(width, out, 1) if residual else None

    def forward(self, x: Tensor) -> Tensor:
        """Run the convolutions."""
        y: Tensor = self.body(x)
        return y if self.skip is None else y + self.skip(x)


class UNet(nn.Module):
    """Contract, expand, and join equal sizes."""

    def __init__(self, style: str, arch: dict[str, Any]) -> None:
        super().__init__()
        self.checkpointing = False
        residual = style == "residual"
        sizes = [arch["base"] * 2**i for i in range(arch["levels"] + 1)]
        self.down = nn.ModuleList(
            Convolutions(w, out, residual, arch)
            for w, out in zip([arch["channels"], *sizes], sizes, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        ups: list[nn.Module] = []
        for out, width in pairwise(sizes):
            if arch["upsample"] == "transposed":
                ups.append(nn.ConvTranspose2d(width, out, 2, 2))
            else:
                ups.append(
                    nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(width, out, 1))
                )
        self.up = nn.ModuleList(ups)
        self.merge = nn.ModuleList(Convolutions(2 * w, w, residual, arch) for w in sizes[:-1])
        self.head = nn.Conv2d(sizes[0], arch["classes"], 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores for each pixel."""
        kept: list[Tensor] = []
        for i, block in enumerate(self.down):
            x = run_blocks([block], x if i == 0 else self.pool(x), self.checkpointing)
            kept.append(x)
        for i in reversed(range(len(self.up))):
            x = torch.cat([kept[i], self.up[i](x)], 1)
            x = run_blocks([self.merge[i]], x, self.checkpointing)
        scores: Tensor = self.head(x)
        return scores


build = UNet


def inputs(arch: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the shapes of the inputs."""
    return (TensorSpec(kind="float", shape=(arch["channels"], arch["size"], arch["size"])),)


def target(arch: dict[str, Any]) -> TensorSpec:
    """Return the shape of the target: one class for each pixel."""
    return TensorSpec(kind="int", shape=(arch["size"], arch["size"]), high=arch["classes"])
