"""Plain convolutional networks: pyramid, uniform, bottleneck, gradual, hourglass (thesis Table 5.4); 1D and 3D too."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from gpumemnet.learning.dataset.config import TensorSpec
from gpumemnet.learning.dataset.draw import Draw, Drawn
from gpumemnet.learning.dataset.models.layers import activation, dropout, widths

STYLES = ("pyramid", "uniform", "bottleneck", "gradual", "hourglass", "conv1d", "conv3d")
LOSS = "cross_entropy"
IMAGE_SIZES = (28, 32, 48, 64, 96, 128, 160, 192, 224, 240, 256, 299, 320, 384, 448, 512)

CONV: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORM: dict[int, type[nn.Module]] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOL: dict[int, type[nn.Module]] = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
MEAN: dict[int, type[nn.Module]] = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}


def draw(d: Draw, style: str) -> Drawn:
    """Draw depth, filters, kernel, image size, downsampling and head.

    Args:
        d: Source of random choices.
        style: Style of the family, as in the names of its styles.
    """
    dims = {"conv1d": 1, "conv3d": 3}.get(style, 2)
    shape_style = style if dims == 2 else d.choice(STYLES[:5])
    depth = d.integer(1, 29) if dims == 2 else d.integer(2, 14)
    first = d.log_integer(16, 512 if dims < 3 else 96, 8)
    size = {1: d.log_integer(400, 48000), 2: d.choice(IMAGE_SIZES), 3: d.choice((16, 24, 32, 48, 64, 96))}[
        dims
    ]
    arch: dict[str, Any] = {
        "dims": dims,
        "size": size,
        "channels": d.choice((1, 3)),
        "classes": d.log_integer(2, 22000) if d.chance(0.5) else d.choice((10, 100, 1000)),
        "widths": widths(shape_style, first, depth, growing=True, low=8, high=1536),
        "kernel": d.weighted(((3, 0.6), (5, 0.25), (7, 0.15))),
        "norm": d.weighted((("batch", 0.65), ("none", 0.2), ("group", 0.15))),
        "activation": d.choice(("relu", "relu_inplace", "elu", "gelu", "silu", "leaky_relu", "hardswish")),
        "dropout": d.choice((0.0, 0.0, 0.2, 0.5)),
        "downsample": d.choice(("stride", "pool")),
        "stem_stride": 2 if size >= 160 and d.chance(0.6) else 1,
        "head": d.weighted((("mean", 0.7), ("hidden", 0.3))),
        "hidden": d.log_integer(128, 4096, 8),
    }
    arch["stages"] = d.integer(1, 5)
    elements, params = _count(arch)
    return Drawn(arch=arch, elements_per_sample=elements, params=params, batch_range=(1, 1024))


def _downsampled(arch: dict[str, Any]) -> list[bool]:
    """Return whether each layer halves the image: `stages` times, evenly, never below 4 pixels."""
    depth, stages = len(arch["widths"]), arch["stages"]
    every = max(1, depth // (stages + 1))
    size, left, flags = arch["size"] // arch["stem_stride"], stages, []
    for i in range(depth):
        halve = i > 0 and i % every == 0 and left > 0 and size >= 8
        flags.append(halve)
        if halve:
            size, left = size // 2, left - 1
    return flags


def _count(arch: dict[str, Any]) -> tuple[float, float]:
    """Return the rough number of elements that a sample leaves for backward, and of parameters."""
    size = arch["size"] / arch["stem_stride"]
    channels, elements, params = arch["channels"], arch["size"] ** arch["dims"] * arch["channels"], 0.0
    per_layer = 1 + (arch["norm"] != "none") + (not arch["activation"].endswith("inplace"))
    for out, halve in zip(arch["widths"], _downsampled(arch), strict=True):
        size = size / 2 if halve else size
        elements += out * size ** arch["dims"] * per_layer
        params += channels * out * arch["kernel"] ** arch["dims"]
        channels = out
    return elements, params + channels * arch["classes"]


class ConvNet(nn.Module):
    """Features, pooling and a classifier, in the layout of torchvision's VGG and AlexNet."""

    def __init__(self, arch: dict[str, Any]) -> None:
        super().__init__()
        dims, kernel, channels = arch["dims"], arch["kernel"], arch["channels"]
        layers: list[nn.Module] = []
        for i, (out, halve) in enumerate(zip(arch["widths"], _downsampled(arch), strict=True)):
            stride = arch["stem_stride"] if i == 0 else (2 if halve and arch["downsample"] == "stride" else 1)
            if halve and arch["downsample"] == "pool":
                layers.append(POOL[dims](2))
            layers.append(CONV[dims](channels, out, kernel, stride, kernel // 2, bias=arch["norm"] == "none"))
            if arch["norm"] == "batch":
                layers.append(NORM[dims](out))
            elif arch["norm"] == "group":
                layers.append(nn.GroupNorm(8 if out % 8 == 0 else 1, out))
            layers.append(activation(arch["activation"]))
            channels = out
        self.features = nn.Sequential(*layers)
        self.pool = MEAN[dims](1)
        if arch["head"] == "hidden":
            self.classifier = nn.Sequential(
                nn.Flatten(),
                nn.Linear(channels, arch["hidden"]),
                activation(arch["activation"]),
                *dropout(arch["dropout"]),
                nn.Linear(arch["hidden"], arch["classes"]),
            )
        else:
            self.classifier = nn.Sequential(
                nn.Flatten(), *dropout(arch["dropout"]), nn.Linear(channels, arch["classes"])
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores."""
        scores: Tensor = self.classifier(self.pool(self.features(x)))
        return scores


def build(style: str, arch: dict[str, Any]) -> nn.Module:
    """Build the network.

    Args:
        style: Style that was drawn.
        arch: Architecture that was drawn: numbers and words by name.
    """
    return ConvNet(arch)


def inputs(arch: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the shapes of the inputs."""
    return (TensorSpec(kind="float", shape=(arch["channels"], *([arch["size"]] * arch["dims"]))),)


def target(arch: dict[str, Any]) -> TensorSpec:
    """Return the shape of the target."""
    return TensorSpec(kind="int", shape=(), high=arch["classes"])
