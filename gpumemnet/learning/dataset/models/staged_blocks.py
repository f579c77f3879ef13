"""Blocks of networks with stages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.learning.dataset.models.layers import activation


class ConvNormAct(nn.Sequential):
    """Convolution, batch norm and, by default, an activation."""

    def __init__(
        self, width: int, out: int, kernel: int, act: str | None, stride: int = 1, groups: int = 1
    ) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(width, out, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(out),
        ]
        super().__init__(*layers, *([activation(act)] if act else []))


class SqueezeExcite(nn.Module):
    """Channel gate from the image's mean."""

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
    """Four parallel branches, concatenated."""

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
