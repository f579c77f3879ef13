"""Convolutional networks of blocks in stages: residual, dense, inverted residual, inception-like, ConvNeXt-like."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from gpumemnet.learning.dataset.config import TensorSpec
from gpumemnet.learning.dataset.draw import Draw, Drawn
from gpumemnet.learning.dataset.models.cnn import IMAGE_SIZES
from gpumemnet.learning.dataset.models.layers import dropout, run_blocks
from gpumemnet.learning.dataset.models.staged_blocks import (
    ConvNeXtBlock,
    ConvNormAct,
    DenseLayer,
    Inception,
    InvertedResidual,
    ResidualBlock,
)

STYLES = ("residual", "residual_bottleneck", "dense", "inverted_residual", "inception", "convnext")
LOSS = "cross_entropy"

# Elements kept for backward per block, in units of (width x pixels): inputs of convolutions, norms, activations.
KEPT = {
    "residual": 6.0,
    "residual_bottleneck": 11.0,
    "dense": 9.0,
    "inverted_residual": 15.0,
    "inception": 6.0,
    "convnext": 13.0,
}


def draw(d: Draw, style: str) -> Drawn:
    """Draw stages, widths, kernel, groups, squeeze-and-excitation and stem; arguments as for `cnn.draw`."""
    stages = d.integer(2, 5)
    base = d.log_integer(12, 160, 4) if style in ("dense", "inverted_residual") else d.log_integer(16, 288, 8)
    most = {"dense": 14, "inverted_residual": 6, "convnext": 10}.get(style, 8)
    size = d.choice(IMAGE_SIZES)
    arch: dict[str, Any] = {
        "size": size,
        "channels": d.choice((1, 3)),
        "classes": d.log_integer(2, 22000) if d.chance(0.4) else d.choice((10, 100, 1000)),
        "depths": [d.integer(1, most) for _ in range(stages)],
        "widths": [min(1536, int(base * d.choice((1.5, 2, 2)) ** i) // 4 * 4) for i in range(stages)],
        "activation": d.choice(("relu", "relu_inplace", "silu", "silu_inplace", "gelu", "hardswish")),
        "kernel": d.choice((3, 3, 5)),
        "expand": d.choice((2, 3, 4, 6)),
        "groups": d.choice((1, 1, 4)),
        "squeeze": d.chance(0.3),
        "growth": d.choice((12, 16, 24, 32, 40, 48)),
        "stem": d.choice(("conv", "conv_pool", "patch")) if size >= 96 else "plain",
        "dropout": d.choice((0.0, 0.0, 0.2)),
    }
    if style == "convnext":
        arch["kernel"] = d.choice((5, 7))
    elements, params = 0.0, 0.0
    shrink = {"plain": 1, "conv": 2, "conv_pool": 4, "patch": 4}[arch["stem"]]
    elements += base * (size / (2 if shrink > 1 else 1)) ** 2 * 3
    for i, (depth, width) in enumerate(zip(arch["depths"], arch["widths"], strict=True)):
        pixels = (size / shrink / 2**i) ** 2
        wide = arch["growth"] * (depth / 2 + 3) if style == "dense" else width
        elements += KEPT[style] * depth * wide * pixels
        params += depth * width**2 * 12
    return Drawn(arch=arch, elements_per_sample=elements, params=params, checkpointable=True)


class StagedNet(nn.Module):
    """Stem, stages of blocks, mean pooling and a linear head."""

    def __init__(self, style: str, arch: dict[str, Any]) -> None:
        super().__init__()
        self.checkpointing = False
        act, width = arch["activation"], arch["widths"][0]
        channels = arch["channels"]
        self.stem = {
            "plain": lambda: ConvNormAct(channels, width, 3, act),
            "conv": lambda: ConvNormAct(channels, width, 3, act, 2),
            "conv_pool": lambda: nn.Sequential(
                ConvNormAct(channels, width, 7, act, 2), nn.MaxPool2d(3, 2, 1)
            ),
            "patch": lambda: nn.Sequential(nn.Conv2d(channels, width, 4, 4), nn.BatchNorm2d(width)),
        }[arch["stem"]]()
        blocks: list[nn.Module] = []
        for i, (depth, out) in enumerate(zip(arch["depths"], arch["widths"], strict=True)):
            for j in range(depth):
                stride = 2 if i > 0 and j == 0 else 1
                if style.startswith("residual"):
                    blocks.append(ResidualBlock(width, out, stride, arch, style.endswith("bottleneck")))
                    width = out
                elif style == "inverted_residual":
                    blocks.append(InvertedResidual(width, out, stride, arch))
                    width = out
                elif style == "inception":
                    if stride == 2:
                        blocks.append(nn.MaxPool2d(3, 2, 1))
                    blocks.append(Inception(width, out, arch))
                    width = out
                elif style == "dense":
                    if stride == 2:
                        blocks.append(
                            nn.Sequential(
                                ConvNormAct(width, max(8, width // 2), 1, act),
                                nn.AvgPool2d(2, 2, ceil_mode=True),
                            )
                        )
                        width = max(8, width // 2)
                    blocks.append(DenseLayer(width, arch))
                    width += arch["growth"]
                else:
                    if stride == 2:
                        blocks.append(nn.Sequential(nn.BatchNorm2d(width), nn.Conv2d(width, out, 2, 2, 1)))
                        width = out
                    blocks.append(ConvNeXtBlock(width, arch))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            *dropout(arch["dropout"]),
            nn.Linear(width, arch["classes"]),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores."""
        x = self.stem(x)
        x = run_blocks(self.blocks, x, True) if self.checkpointing else self.blocks(x)
        scores: Tensor = self.head(x)
        return scores


build = StagedNet


def inputs(arch: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the shapes of the inputs."""
    return (TensorSpec(kind="float", shape=(arch["channels"], arch["size"], arch["size"])),)


def target(arch: dict[str, Any]) -> TensorSpec:
    """Return the shape of the target."""
    return TensorSpec(kind="int", shape=(), high=arch["classes"])
