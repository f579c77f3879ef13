"""Convolutional networks of blocks in stages: residual, dense, inverted residual, inception-like, ConvNeXt-like."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.dataset.config import TensorSpec
from gpumemnet.dataset.draw import Draw, Drawn
from gpumemnet.dataset.models.cnn import IMAGE_SIZES
from gpumemnet.dataset.models.layers import activation, dropout, run_blocks

STYLES = ("residual", "residual_bottleneck", "dense", "inverted_residual", "inception", "convnext")
LOSS = "cross_entropy"

# Elements kept for backward per block, as multiples of (width x pixels): inputs of convolutions, norms, activations.
KEPT = {
    "residual": 6.0,
    "residual_bottleneck": 11.0,
    "dense": 9.0,
    "inverted_residual": 15.0,
    "inception": 6.0,
    "convnext": 13.0,
}


def draw(d: Draw, style: str) -> Drawn:
    """Draw stages, widths, kernel, groups, squeeze-and-excitation and stem.

    Args:
        d: Source of random choices.
        style: Style of the family, as in the names of its styles.
    """
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


class ConvNormAct(nn.Sequential):
    """Convolution, batch norm and, unless told otherwise, an activation."""

    def __init__(
        self, width: int, out: int, kernel: int, act: str | None, stride: int = 1, groups: int = 1
    ) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(width, out, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(out),
        ]
        super().__init__(*layers, *([activation(act)] if act else []))


class SqueezeExcite(nn.Module):
    """Channel gate from the picture's mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(width, max(4, width // 4), 1)
        self.relu = nn.ReLU()
        self.fc2 = nn.Conv2d(max(4, width // 4), width, 1)
        self.gate = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """Scale each channel."""
        gate: Tensor = self.gate(self.fc2(self.relu(self.fc1(self.avgpool(x)))))
        return x * gate


class ResidualBlock(nn.Module):
    """Basic or bottleneck residual block with an optional gate."""

    def __init__(self, width: int, out: int, stride: int, arch: dict[str, Any], bottleneck: bool) -> None:
        super().__init__()
        act, kernel = arch["activation"], arch["kernel"]
        if bottleneck:
            inner = max(4, out // 4)
            groups = arch["groups"] if inner % arch["groups"] == 0 else 1
            layers = [
                ConvNormAct(width, inner, 1, act),
                ConvNormAct(inner, inner, kernel, act, stride, groups),
                ConvNormAct(inner, out, 1, None),
            ]
        else:
            layers = [ConvNormAct(width, out, kernel, act, stride), ConvNormAct(out, out, kernel, None)]
        self.body = nn.Sequential(*layers, *([SqueezeExcite(out)] if arch["squeeze"] else []))
        self.shortcut = (
            ConvNormAct(width, out, 1, None, stride) if stride > 1 or width != out else nn.Identity()
        )
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        """Add the body to the shortcut."""
        y: Tensor = self.act(self.body(x) + self.shortcut(x))
        return y


class DenseLayer(nn.Module):
    """Norm, 1x1, norm, 3x3; its output is appended to its input."""

    def __init__(self, width: int, arch: dict[str, Any]) -> None:
        super().__init__()
        growth = arch["growth"]
        self.norm1, self.act1 = nn.BatchNorm2d(width), activation(arch["activation"])
        self.conv1 = nn.Conv2d(width, 4 * growth, 1, bias=False)
        self.norm2, self.act2 = nn.BatchNorm2d(4 * growth), activation(arch["activation"])
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Append `growth` new channels."""
        new = self.conv2(self.act2(self.norm2(self.conv1(self.act1(self.norm1(x))))))
        return torch.cat([x, new], 1)


class InvertedResidual(nn.Module):
    """Expand, depthwise, gate, project."""

    def __init__(self, width: int, out: int, stride: int, arch: dict[str, Any]) -> None:
        super().__init__()
        act, inner = arch["activation"], width * arch["expand"]
        self.block = nn.Sequential(
            ConvNormAct(width, inner, 1, act),
            ConvNormAct(inner, inner, arch["kernel"], act, stride, inner),
            *([SqueezeExcite(inner)] if arch["squeeze"] else []),
            ConvNormAct(inner, out, 1, None),
        )
        self.add = stride == 1 and width == out

    def forward(self, x: Tensor) -> Tensor:
        """Add the input where shapes allow it."""
        y: Tensor = self.block(x)
        return x + y if self.add else y


class Inception(nn.Module):
    """Four branches side by side, concatenated."""

    def __init__(self, width: int, out: int, arch: dict[str, Any]) -> None:
        super().__init__()
        act, quarter = arch["activation"], out // 4
        self.branch1 = ConvNormAct(width, quarter, 1, act)
        self.branch2 = nn.Sequential(
            ConvNormAct(width, quarter // 2 + 1, 1, act), ConvNormAct(quarter // 2 + 1, quarter, 3, act)
        )
        self.branch3 = nn.Sequential(
            ConvNormAct(width, quarter // 4 + 1, 1, act), ConvNormAct(quarter // 4 + 1, quarter, 5, act)
        )
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1), ConvNormAct(width, out - 3 * quarter, 1, act))

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the branches."""
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, layer norm and an inverted bottleneck of linear layers."""

    def __init__(self, width: int, arch: dict[str, Any]) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, arch["kernel"], padding=arch["kernel"] // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.pwconv1 = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Add the block to its input."""
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(self.act(self.pwconv1(y)))
        out: Tensor = x + y.permute(0, 3, 1, 2)
        return out


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


def build(style: str, arch: dict[str, Any]) -> nn.Module:
    """Build the network.

    Args:
        style: Style that was drawn.
        arch: Architecture that was drawn: numbers and words by name.
    """
    return StagedNet(style, arch)


def inputs(arch: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the shapes of the inputs."""
    return (TensorSpec(kind="float", shape=(arch["channels"], arch["size"], arch["size"])),)


def target(arch: dict[str, Any]) -> TensorSpec:
    """Return the shape of the target."""
    return TensorSpec(kind="int", shape=(), high=arch["classes"])
