"""Networks that bench/settings/train.py trains, mostly convolutional: there PyTorch's settings matter most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Network(NamedTuple):
    """One network.

    Attributes:
        build: Makes it.
        batch: Makes inputs and target of so many samples.
        loss: Of its output and the target.
    """

    build: Callable[[], nn.Module]
    batch: Callable[[int], tuple[Tensor, Tensor]]
    loss: Callable[[Any, Tensor], Tensor] = F.cross_entropy


def images(side: int, classes: int = 1000, channels: int = 3) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Return what makes a batch of labelled images.

    Args:
        side: Pixels.
        classes: Of labels.
        channels: Of pixels.
    """
    return lambda n: (torch.randn(n, channels, side, side), torch.randint(0, classes, (n,)))


def torchvision_model(name: str, side: int = 224, **values: Any) -> Network:
    """Return one of torchvision's classifiers.

    Args:
        name: Its name there.
        side: Pixels.
        **values: Given to its builder.
    """

    def build() -> nn.Module:
        import torchvision

        model: nn.Module = torchvision.models.get_model(name, weights=None, **values)
        return model

    return Network(build, images(side))


class WideBlock(nn.Module):
    """Two convolutions behind normalization, with a shortcut (Zagoruyko and Komodakis 2016)."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(inplace=True))
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Dropout(0.3),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
        )
        same = before == width and stride == 1
        self.bypass = nn.Identity() if same else nn.Conv2d(before, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        x = self.first(x)
        out: Tensor = self.body(x) + self.bypass(x)
        return out


def wide_resnet() -> nn.Module:
    """Return WideResNet-28-10 for CIFAR."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
    before = 16
    for width, stride in ((160, 1), (320, 2), (640, 2)):
        for n in range(4):
            layers.append(WideBlock(before, width, stride if n == 0 else 1))
            before = width
    end = (nn.BatchNorm2d(before), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*layers, *end, nn.Linear(before, 10))


class RonnebergerUNet(nn.Module):
    """A U-Net of two or three dimensions (Ronneberger and others 2015)."""

    def __init__(self, dimensions: int, width: int, levels: int, classes: int) -> None:
        super().__init__()
        conv, norm = (nn.Conv2d, nn.BatchNorm2d) if dimensions == 2 else (nn.Conv3d, nn.BatchNorm3d)
        up = nn.ConvTranspose2d if dimensions == 2 else nn.ConvTranspose3d
        self.pool: nn.Module = nn.MaxPool2d(2) if dimensions == 2 else nn.MaxPool3d(2)

        def double(before: int, after: int) -> nn.Module:
            parts: list[nn.Module] = []
            for n in (before, after):
                parts += [conv(n, after, 3, padding=1, bias=False), norm(after), nn.ReLU(inplace=True)]
            return nn.Sequential(*parts)

        widths = [width * 2**n for n in range(levels + 1)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([3, *widths], widths, strict=False))
        pairs = list(zip(reversed(widths[:-1]), reversed(widths[1:]), strict=True))
        self.up = nn.ModuleList(up(high, low, 2, stride=2) for low, high in pairs)
        self.merge = nn.ModuleList(double(2 * low, low) for low, _ in pairs)
        self.last = conv(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a map of classes."""
        kept = []
        for n, block in enumerate(self.down):
            x = block(self.pool(x) if n else x)
            kept.append(x)
        for up, merge, bypass in zip(self.up, self.merge, reversed(kept[:-1]), strict=True):
            x = merge(torch.cat([bypass, up(x)], 1))
        out: Tensor = self.last(x)
        return out


def maps(side: int, dimensions: int, classes: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Return what makes a batch of images with a class for each pixel.

    Args:
        side: Pixels.
        dimensions: Two or three.
        classes: Of pixels.
    """
    shape = (side,) * dimensions
    return lambda n: (torch.randn(n, 3, *shape), torch.randint(0, classes, (n, *shape)))


class WaveNet(nn.Module):
    """Dilated convolutions over a signal with gates and skips (van den Oord and others 2016)."""

    def __init__(self, width: int = 128, layers: int = 20) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gated = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 3, padding=2 ** (n % 10), dilation=2 ** (n % 10))
            for n in range(layers)
        )
        self.out = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(layers))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 256, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of 256 levels for each sample of the signal."""
        x, skips = self.first(x), torch.zeros((), device=x.device)
        for gated, out in zip(self.gated, self.out, strict=True):
            left, right = gated(x).chunk(2, 1)
            added, skip = out(torch.tanh(left) * torch.sigmoid(right)).chunk(2, 1)
            x, skips = x + added, skips + skip
        levels: Tensor = self.last(skips)
        return levels


class Upsampler(nn.Module):
    """Transposed convolutions from noise to an image (DCGAN's generator), judged by its discriminator."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        up: list[nn.Module] = [nn.ConvTranspose2d(100, width * 8, 4, 1, 0, bias=False)]
        down: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
        for n in (8, 4, 2):
            up += [nn.BatchNorm2d(width * n), nn.ReLU(True)]
            up += [nn.ConvTranspose2d(width * n, width * n // 2, 4, 2, 1, bias=False)]
        up += [nn.BatchNorm2d(width), nn.ReLU(True), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh()]
        for n in (1, 2, 4):
            down += [nn.Conv2d(width * n, width * n * 2, 4, 2, 1, bias=False)]
            down += [nn.BatchNorm2d(width * n * 2), nn.LeakyReLU(0.2)]
        down += [nn.Conv2d(width * 8, 2, 4), nn.Flatten()]
        self.both = nn.Sequential(*up, *down)

    def forward(self, noise: Tensor) -> Tensor:
        """Return the verdict on what the noise became."""
        verdict: Tensor = self.both(noise)
        return verdict


class Words(nn.Module):
    """A recurrent or an attending language model."""

    def __init__(self, kind: str, words: int = 20000, width: int = 768) -> None:
        super().__init__()
        self.kind, self.table = kind, nn.Embedding(words, width)
        if kind == "lstm":
            self.body: nn.Module = nn.LSTM(width, width, 3, batch_first=True, dropout=0.2)
        else:
            layer = nn.TransformerEncoderLayer(width, 12, 4 * width, batch_first=True, activation="gelu")
            self.body = nn.TransformerEncoder(layer, 6)
        self.out = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next word, at every place."""
        x = self.body(self.table(tokens))
        logits: Tensor = self.out(x[0] if self.kind == "lstm" else x)
        return logits.transpose(1, 2)


def tokens(n: int) -> tuple[Tensor, Tensor]:
    """Return a batch of 256 words each.

    Args:
        n: Samples.
    """
    return torch.randint(0, 20000, (n, 256)), torch.randint(0, 20000, (n, 256))


def signals(n: int) -> tuple[Tensor, Tensor]:
    """Return a batch of 16,000 samples of a signal each.

    Args:
        n: Samples.
    """
    return torch.randn(n, 1, 16000), torch.randint(0, 256, (n, 16000))


def _segmented(output: dict[str, Tensor], target: Tensor) -> Tensor:
    return F.cross_entropy(output["out"], target)


def _deeplab() -> nn.Module:
    import torchvision

    model: nn.Module = torchvision.models.segmentation.deeplabv3_resnet50(
        weights=None, weights_backbone=None, num_classes=21
    )
    return model


def _video() -> nn.Module:
    import torchvision

    model: nn.Module = torchvision.models.video.r3d_18(weights=None, num_classes=400)
    return model


NETWORKS: dict[str, Network] = {
    "resnet18": torchvision_model("resnet18"),
    "resnet50": torchvision_model("resnet50"),
    "vgg16": torchvision_model("vgg16"),
    "densenet121": torchvision_model("densenet121"),
    "mobilenet_v2": torchvision_model("mobilenet_v2"),
    "efficientnet_b0": torchvision_model("efficientnet_b0"),
    "convnext_tiny": torchvision_model("convnext_tiny"),
    "squeezenet1_1": torchvision_model("squeezenet1_1"),
    "regnet_y_1_6gf": torchvision_model("regnet_y_1_6gf"),
    "resnext50_32x4d": torchvision_model("resnext50_32x4d"),
    "shufflenet_v2_x1_0": torchvision_model("shufflenet_v2_x1_0"),
    "inception_v3": torchvision_model("inception_v3", 299, aux_logits=False, init_weights=False),
    "vit_b_16": torchvision_model("vit_b_16"),
    "wide_resnet28_10": Network(wide_resnet, images(32, 10)),
    "unet": Network(lambda: RonnebergerUNet(2, 64, 4, 21), maps(256, 2, 21)),
    "unet3d": Network(lambda: RonnebergerUNet(3, 32, 3, 4), maps(64, 3, 4)),
    "deeplabv3": Network(_deeplab, maps(256, 2, 21), _segmented),
    "video": Network(_video, lambda n: (torch.randn(n, 3, 16, 112, 112), torch.randint(0, 400, (n,)))),
    "wavenet": Network(WaveNet, signals),
    "dcgan": Network(Upsampler, lambda n: (torch.randn(n, 100, 1, 1), torch.randint(0, 2, (n,)))),
    "lstm": Network(lambda: Words("lstm"), tokens),
    "encoder": Network(lambda: Words("encoder"), tokens),
}
