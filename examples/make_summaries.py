"""Print the model summaries in examples/models/ (needs torch, torchinfo and torchsummary; nothing else here does).

python3 examples/make_summaries.py          # writes examples/models/*.txt
"""

from __future__ import annotations

import contextlib
import io
import itertools
from pathlib import Path

import torch
from torch import Tensor, nn
from torchinfo import summary as torchinfo_summary
from torchsummary import summary as torchsummary_summary

FOLDER = Path(__file__).parent / "models"


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions (He et al., 2016)."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        added: Tensor = self.bn3(self.conv3(out)) + self.shortcut(x)
        return torch.relu(added)


class BasicBlock(nn.Module):
    """ResNet's block of two convolutions."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out = self.relu(self.bn1(self.conv1(x)))
        added: Tensor = self.bn2(self.conv2(out)) + self.shortcut(x)
        return torch.relu(added)


def resnet(block: type[BasicBlock] | type[Bottleneck], depths: tuple[int, ...], *, classes: int) -> nn.Module:
    """Return a ResNet with so many blocks in each of its four stages."""
    grow = 4 if block is Bottleneck else 1
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
    ]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inside = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for index in range(depth):
            layers.append(block(inside, width, 2 if stage and index == 0 else 1))
            inside = width * grow
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


def encoder(layers: int, width: int, heads: int) -> nn.Module:
    """Return a Transformer encoder over embedded tokens, as BERT is one."""
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, activation="gelu")
    body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(30522, width), body, nn.Linear(width, 30522))


def mlp(*widths: int) -> nn.Module:
    """Return a multi-layer perceptron."""
    layers: list[nn.Module] = []
    for inside, outside in itertools.pairwise(widths):
        layers += [nn.Linear(inside, outside), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def main() -> None:
    """Write every summary."""
    image = (3, 224, 224)
    torchinfo = {
        "resnet18_torchinfo.txt": (resnet(BasicBlock, (2, 2, 2, 2), classes=1000), (32, *image), None),
        "resnet50_torchinfo.txt": (resnet(Bottleneck, (3, 4, 6, 3), classes=1000), (64, *image), None),
        "resnet152_torchinfo.txt": (resnet(Bottleneck, (3, 8, 36, 3), classes=1000), (64, *image), None),
        "encoder12_torchinfo.txt": (encoder(12, 768, 12), (16, 128), [torch.long]),
        "mlp_torchinfo.txt": (mlp(784, 2048, 2048, 10), (256, 784), None),
    }
    for name, (model, size, dtypes) in torchinfo.items():
        text = str(torchinfo_summary(model.train(), input_size=size, dtypes=dtypes, depth=4, verbose=0))
        (FOLDER / name).write_text(text + "\n")
    torchsummary = {
        "resnet18_cifar_torchsummary.txt": (resnet(BasicBlock, (2, 2, 2, 2), classes=10), (3, 32, 32)),
        "resnet50_torchsummary.txt": (resnet(Bottleneck, (3, 4, 6, 3), classes=1000), image),
    }
    for name, (model, size) in torchsummary.items():
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            torchsummary_summary(model, size, device="cpu")
        (FOLDER / name).write_text(shown.getvalue())


if __name__ == "__main__":
    main()
