"""Mixers: MLP-Mixer over patches and ConvMixer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from gpumemnet.learning.dataset.config import TensorSpec
from gpumemnet.learning.dataset.draw import Draw, Drawn
from gpumemnet.learning.dataset.models.layers import activation, run_blocks

STYLES = ("mlp_mixer", "conv_mixer")
LOSS = "cross_entropy"


def draw(d: Draw, style: str) -> Drawn:
    """Draw width, depth, patch and image; arguments as for `cnn.draw`."""
    patch, side = d.choice((4, 7, 8, 14, 16, 32)), d.integer(4, 32)
    dim = d.log_integer(64, 1536, 8)
    arch: dict[str, Any] = {
        "patch": patch,
        "side": side,
        "channels": d.choice((1, 3)),
        "classes": d.log_integer(2, 22000),
        "dim": dim,
        "layers": d.integer(1, 24),
        "token_hidden": d.log_integer(32, 1024, 8),
        "channel_hidden": int(dim * d.choice((2, 3, 4))),
        "kernel": d.choice((3, 5, 7, 9)),
        "dropout": d.choice((0.0, 0.0, 0.1)),
    }
    tokens = side * side
    if style == "mlp_mixer":
        kept = tokens * dim * 5 + 3 * dim * arch["token_hidden"] + 3 * tokens * arch["channel_hidden"]
        params = 2 * dim * arch["channel_hidden"] + 2 * tokens * arch["token_hidden"]
    else:
        kept, params = tokens * dim * 7, dim * dim + dim * arch["kernel"] ** 2
    pixels = arch["channels"] * (side * patch) ** 2
    return Drawn(
        arch=arch,
        elements_per_sample=arch["layers"] * kept + pixels,
        params=arch["layers"] * params,
        checkpointable=True,
    )


class MlpBlock(nn.Module):
    """Linear, GELU, dropout, linear."""

    def __init__(self, dim: int, hidden: int, rate: float) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim)
        self.drop = nn.Dropout(rate)

    def forward(self, x: Tensor) -> Tensor:
        """Transform the last dimension."""
        y: Tensor = self.drop(self.fc2(self.act(self.fc1(x))))
        return y


class MixerBlock(nn.Module):
    """Mixes tokens, then channels."""

    def __init__(self, arch: dict[str, Any]) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(arch["dim"]), nn.LayerNorm(arch["dim"])
        self.mlp_tokens = MlpBlock(arch["side"] ** 2, arch["token_hidden"], arch["dropout"])
        self.mlp_channels = MlpBlock(arch["dim"], arch["channel_hidden"], arch["dropout"])

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        x = x + self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        y: Tensor = x + self.mlp_channels(self.norm2(x))
        return y


class ConvMixerBlock(nn.Module):
    """Residual depthwise convolution, then a pointwise one."""

    def __init__(self, arch: dict[str, Any]) -> None:
        super().__init__()
        dim = arch["dim"]
        depthwise = nn.Conv2d(dim, dim, arch["kernel"], groups=dim, padding="same")
        self.spatial = nn.Sequential(depthwise, activation("gelu"), nn.BatchNorm2d(dim))
        self.channel = nn.Sequential(nn.Conv2d(dim, dim, 1), activation("gelu"), nn.BatchNorm2d(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        y: Tensor = self.channel(x + self.spatial(x))
        return y


class Mixer(nn.Module):
    """Patches, mixer blocks, mean and a linear head."""

    def __init__(self, style: str, arch: dict[str, Any]) -> None:
        super().__init__()
        self.checkpointing, self.tokens = False, style == "mlp_mixer"
        self.stem = nn.Conv2d(arch["channels"], arch["dim"], arch["patch"], arch["patch"])
        block = MixerBlock if self.tokens else ConvMixerBlock
        self.blocks = nn.ModuleList(block(arch) for _ in range(arch["layers"]))
        self.norm = nn.LayerNorm(arch["dim"]) if self.tokens else nn.Identity()
        self.pool = nn.Identity() if self.tokens else nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(arch["dim"], arch["classes"])

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores."""
        x = self.stem(x)
        if self.tokens:
            x = x.flatten(2).transpose(1, 2)
        x = self.norm(run_blocks(self.blocks, x, self.checkpointing))
        scores: Tensor = self.head(x.mean(1) if self.tokens else self.pool(x).flatten(1))
        return scores


build = Mixer


def inputs(arch: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the shapes of the inputs."""
    size = arch["side"] * arch["patch"]
    return (TensorSpec(kind="float", shape=(arch["channels"], size, size)),)


def target(arch: dict[str, Any]) -> TensorSpec:
    """Return the shape of the target."""
    return TensorSpec(kind="int", shape=(), high=arch["classes"])
