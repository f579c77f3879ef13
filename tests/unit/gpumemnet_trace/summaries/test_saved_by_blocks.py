"""Blocks whose branches meet in code that no row shows: what the account says they save, against what PyTorch saves."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchinfo")
from torch import Tensor, nn  # noqa: E402 - skipped above where it is missing

from gpumemnet.learning.dataset.summaries import torchinfo_text  # noqa: E402
from gpumemnet.names import Precision  # noqa: E402
from gpumemnet.profile.build import profile_summary  # noqa: E402
from gpumemnet.training import TrainingSetup  # noqa: E402

COLUMNS = ("input_size", "output_size", "num_params")
BATCH, CHANNELS, SIDE = 8, 32, 16
CLOSE = 0.03
"""Statistics of norms are not counted."""


class ConvNorm(nn.Module):
    """A convolution with its norm and, if wanted, an activation of its own."""

    def __init__(self, ins: int, outs: int, side: int = 3, act: nn.Module | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(ins, outs, side, padding=side // 2, bias=False)
        self.bn = nn.BatchNorm2d(outs)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.conv(x))
        return x if self.act is None else self.act(x)


class RepVGGBlock(nn.Module):
    """Three branches of one input, summed."""

    def __init__(self) -> None:
        super().__init__()
        self.identity = nn.BatchNorm2d(CHANNELS)
        self.dense = ConvNorm(CHANNELS, CHANNELS)
        self.one = ConvNorm(CHANNELS, CHANNELS, 1)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.identity(x) + self.dense(x) + self.one(x))


class DarkBlock(nn.Module):
    """The sum comes after the last activation, which keeps its result in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = ConvNorm(CHANNELS, CHANNELS // 2, 1, nn.ReLU())
        self.conv2 = ConvNorm(CHANNELS // 2, CHANNELS, 3, nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.conv1(x)) + x


class PlainBlock(nn.Module):
    """A residual block whose activation follows the sum: nothing more is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = ConvNorm(CHANNELS, CHANNELS, 3, nn.ReLU())
        self.conv2 = ConvNorm(CHANNELS, CHANNELS)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.conv2(self.conv1(x)) + x)


class StarBlock(nn.Module):
    """The product of two branches, one of them activated."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (ConvNorm(CHANNELS, 3 * CHANNELS, 1) for _ in range(2))
        self.act = nn.ReLU6()
        self.back = ConvNorm(3 * CHANNELS, CHANNELS, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.back(self.act(self.first(x)) * self.second(x))


class StarReLU(nn.Module):
    """timm's: a scaled and shifted square of ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.relu(x) ** 2 + self.bias


class ScaledBlock(nn.Module):
    """Two branches, each scaled channel by channel by parameters of the block (CaiT, BEiT)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
        self.one, self.two = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.gamma_1, self.gamma_2 = (nn.Parameter(torch.ones(CHANNELS)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.gamma_1 * self.one(self.norm1(x))
        return x + self.gamma_2 * self.two(self.norm2(x))


class GatedConvBlock(nn.Module):
    """One projection makes gate, identity and what a convolution works on (MambaOut)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS)
        self.sizes = (2 * CHANNELS, CHANNELS, CHANNELS)
        self.fc1, self.fc2 = nn.Linear(CHANNELS, sum(self.sizes)), nn.Linear(2 * CHANNELS, CHANNELS)
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 7, padding=3, groups=CHANNELS)
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        gate, same, worked = torch.split(self.fc1(self.norm(x)), self.sizes, dim=-1)
        worked = self.conv(worked.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return x + self.fc2(self.act(gate) * torch.cat((same, worked), dim=-1))


class GatedMlp(nn.Module):
    """Half of what is activated is mixed over the tokens and multiplied with the other half (gMLP)."""

    TOKENS = 49

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(CHANNELS, 4 * CHANNELS), nn.Linear(2 * CHANNELS, CHANNELS)
        self.act, self.norm = nn.GELU(), nn.LayerNorm(2 * CHANNELS)
        self.mix = nn.Linear(self.TOKENS, self.TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        same, mixed = self.act(self.fc1(x)).chunk(2, dim=-1)
        return self.fc2(same * self.mix(self.norm(mixed).transpose(1, 2)).transpose(1, 2))


class Modulation(nn.Module):
    """One convolution makes queries and context; the context is worked on and multiplied back (FocalNet)."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Conv2d(CHANNELS, 2 * CHANNELS, 1)
        self.focal = nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS), nn.GELU())
        self.h, self.proj = nn.Conv2d(CHANNELS, CHANNELS, 1), nn.Conv2d(CHANNELS, CHANNELS, 1)

    def forward(self, x: Tensor) -> Tensor:
        queries, context = self.f(x).chunk(2, dim=1)
        return self.proj(queries * self.h(self.focal(context)))


class FoldedAttention(nn.Module):
    """Heads are part of the batch, as two placeholders show, so nothing fuses it (SAM)."""

    HEADS = 4

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.q_norm, self.k_norm = nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, channels = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.reshape(3, batch * self.HEADS, tokens, -1).unbind(0)
        x = (self.q_norm(q) @ self.k_norm(k).transpose(1, 2)).softmax(-1) @ v
        return self.proj(
            x.view(batch, self.HEADS, tokens, -1).transpose(1, 2).reshape(batch, tokens, channels)
        )


class GPSA(nn.Module):
    """Scores are mixed with those of the distances, of which a row shows the heads (ConViT)."""

    HEADS = 4

    def __init__(self) -> None:
        super().__init__()
        self.qk, self.v = (
            nn.Linear(CHANNELS, 2 * CHANNELS, bias=False),
            nn.Linear(CHANNELS, CHANNELS, bias=False),
        )
        self.pos_proj, self.proj = nn.Linear(3, self.HEADS), nn.Linear(CHANNELS, CHANNELS)
        self.gate = nn.Parameter(torch.ones(self.HEADS))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, channels = x.shape
        q, k = self.qk(x).reshape(batch, tokens, 2, self.HEADS, -1).permute(2, 0, 3, 1, 4)
        near = torch.zeros(batch, tokens, tokens, 3, device=x.device)
        near = self.pos_proj(near).permute(0, 3, 1, 2).softmax(-1)
        gate = self.gate.view(1, -1, 1, 1).sigmoid()
        scores = (1 - gate) * (q @ k.transpose(-2, -1)).softmax(-1) + gate * near
        scores = scores / scores.sum(-1, keepdim=True)
        v = self.v(x).reshape(batch, tokens, self.HEADS, -1).transpose(1, 2)
        return self.proj((scores @ v).transpose(1, 2).reshape(batch, tokens, channels))


class CosineAttention(nn.Module):
    """Queries and keys of length one, a learned scale for each head, projections as functions (Swin v2)."""

    HEADS = 4

    def __init__(self) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.zeros(3 * CHANNELS, CHANNELS))
        self.scale = nn.Parameter(torch.ones(self.HEADS, 1, 1))
        self.positions = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, self.HEADS))
        self.softmax, self.proj = nn.Softmax(dim=-1), nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, channels = x.shape
        qkv = nn.functional.linear(x, self.in_proj_weight)
        q, k, v = qkv.reshape(batch, tokens, 3, self.HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k = nn.functional.normalize(q, dim=-1), nn.functional.normalize(k, dim=-1)
        near = self.positions(torch.zeros(1, tokens, 2, device=x.device)).mean(1).view(-1, 1, 1)
        scores = self.softmax((q @ k.transpose(-2, -1)) * self.scale + near)
        return self.proj((scores @ v).transpose(1, 2).reshape(batch, tokens, channels))


class PooledAttention(nn.Module):
    """Convolutions pool queries, keys and values after their projection (MViT)."""

    HEADS = 4

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        head = CHANNELS // self.HEADS
        self.pool_q, self.pool_k, self.pool_v = (
            nn.Conv2d(head, head, 3, stride, 1, groups=head, bias=False) for stride in (1, 2, 2)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, channels = x.shape
        side = math.isqrt(tokens)
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.HEADS, -1).permute(2, 0, 3, 4, 1)
        parts = [part.reshape(batch * self.HEADS, -1, side, side) for part in qkv]
        pools = (self.pool_q, self.pool_k, self.pool_v)
        q, k, v = (pool(part).flatten(2).transpose(1, 2) for pool, part in zip(pools, parts, strict=True))
        x = (q @ k.transpose(1, 2)).softmax(-1) @ v
        return self.proj(
            x.reshape(batch, self.HEADS, tokens, -1).transpose(1, 2).reshape(batch, tokens, channels)
        )


class TextNetRepConvLayer(nn.Module):
    """Convolutions of several forms read the block's input, each with its norm; all are summed (TextNet)."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(CHANNELS, CHANNELS, side, padding="same") for side in (3, 1))
        self.norm1, self.norm2, self.norm3 = (nn.BatchNorm2d(CHANNELS) for _ in range(3))
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm1(self.one(x)) + self.norm2(self.two(x)) + self.norm3(x))


class RepGhostModule(nn.Module):
    """A norm alone next to a convolution with its norm: a sum, not a product, is activated (RepGhost)."""

    def __init__(self) -> None:
        super().__init__()
        self.cheap = ConvNorm(CHANNELS, CHANNELS)
        self.fusion = nn.Sequential(nn.BatchNorm2d(CHANNELS))
        self.act, self.back = nn.ReLU(), ConvNorm(CHANNELS, CHANNELS, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.back(self.act(self.cheap(x) + self.fusion(x)))


class InvertedResidual(nn.Module):
    """Half of the channels go around the convolutions (ShuffleNet v2)."""

    def __init__(self) -> None:
        super().__init__()
        half = CHANNELS // 2
        self.branch = nn.Sequential(ConvNorm(half, half, 1, nn.ReLU()), ConvNorm(half, half))

    def forward(self, x: Tensor) -> Tensor:
        same, worked = x.chunk(2, dim=1)
        return torch.cat((same, self.branch(worked)), dim=1)


class PartialConv(nn.Module):
    """A quarter of the channels is convolved (FasterNet)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS // 4, CHANNELS // 4, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        worked, same = torch.split(x, (CHANNELS // 4, CHANNELS - CHANNELS // 4), dim=1)
        return torch.cat((self.conv(worked), same), dim=1)


class MixedConv2d(nn.Module):
    """Each convolution reads its own half of the channels (MixNet)."""

    def __init__(self) -> None:
        super().__init__()
        half = CHANNELS // 2
        self.small, self.large = (nn.Conv2d(half, half, side, padding="same") for side in (3, 5))

    def forward(self, x: Tensor) -> Tensor:
        one, two = x.chunk(2, dim=1)
        return torch.cat((self.small(one), self.large(two)), dim=1)


class Bottle2neck(nn.Module):
    """What one slice becomes is added to the next one; all are put together again (Res2Net)."""

    def __init__(self) -> None:
        super().__init__()
        part = CHANNELS // 2
        self.conv1, self.bn1 = nn.Conv2d(CHANNELS, 4 * part, 1, bias=False), nn.BatchNorm2d(4 * part)
        self.convs = nn.ModuleList(nn.Conv2d(part, part, 3, padding=1, bias=False) for _ in range(3))
        self.bns = nn.ModuleList(nn.BatchNorm2d(part) for _ in range(3))
        self.conv3, self.bn3 = nn.Conv2d(4 * part, CHANNELS, 1, bias=False), nn.BatchNorm2d(CHANNELS)
        self.relu, self.put = nn.ReLU(inplace=True), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        slices = torch.split(self.relu(self.bn1(self.conv1(x))), CHANNELS // 2, dim=1)
        made: list[Tensor] = []
        for conv, bn, part in zip(self.convs, self.bns, slices, strict=False):
            made.append(self.relu(bn(conv(made[-1] + part if made else part))))
        return self.relu(self.bn3(self.conv3(self.put(torch.cat((*made, slices[-1]), dim=1)))) + x)


class WindowMultiHeadAttention(nn.Module):
    """Cosine attention whose projections are rows; the scale of each head is its own parameter (Swin v2 CR)."""

    HEADS = 4

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.logit_scale, self.drop = nn.Parameter(torch.ones(self.HEADS)), nn.Softmax(dim=-1)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.parts(x)
        q, k = nn.functional.normalize(q, dim=-1), nn.functional.normalize(k, dim=-1)
        scores = self.drop((q @ k.transpose(-2, -1)) * self.logit_scale.view(1, -1, 1, 1).exp())
        return self.proj((scores @ v).transpose(1, 2).reshape(x.shape))


class Swinv2SelfAttention(WindowMultiHeadAttention):
    """The same with three projections, of which the keys' has no bias (transformers' Swin v2)."""

    def __init__(self) -> None:
        super().__init__()
        del self.qkv
        self.query, self.value = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.key = nn.Linear(CHANNELS, CHANNELS, bias=False)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made = (layer(x).view(*x.shape[:2], self.HEADS, -1) for layer in (self.query, self.key, self.value))
        q, k, v = (each.transpose(1, 2) for each in made)
        return q, k, v


class AttentionRope(nn.Module):
    """Queries and keys of a joint projection, turned by their positions, in fused attention (timm's rotary ViTs)."""

    HEADS = 4

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(4 * CHANNELS, 12 * CHANNELS), nn.Linear(4 * CHANNELS, 4 * CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = q * 0.5 + q.roll(1, -1) * 0.5, k * 0.5 + k.roll(1, -1) * 0.5
        made = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(made.transpose(1, 2).reshape(x.shape))


class ScaledStdConv2d(nn.Conv2d):
    """Its weight is normalised at each step (BiT, NF-Net)."""

    def forward(self, x: Tensor) -> Tensor:
        flat = self.weight.reshape(1, self.out_channels, -1)
        weight = nn.functional.batch_norm(flat, None, None, training=True).reshape_as(self.weight)
        return nn.functional.conv2d(x, weight, self.bias, self.stride, self.padding)


class ConvBertSelfAttention(nn.Module):
    """A convolution with a kernel for each token runs next to the attention, on copies of neighbours (ConvBERT)."""

    HEADS = 4

    def __init__(self) -> None:
        super().__init__()
        self.key, self.value, self.query = (nn.Linear(CHANNELS, CHANNELS) for _ in range(3))
        self.kernel, self.alongside = nn.Linear(CHANNELS, 3 * self.HEADS), nn.Linear(CHANNELS, CHANNELS)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        made = (
            layer(x).view(*x.shape[:2], self.HEADS, -1).transpose(1, 2) for layer in (self.key, self.value)
        )
        (k, v), query = made, self.query(x)
        q = query.view(*x.shape[:2], self.HEADS, -1).transpose(1, 2)
        kernel = self.kernel(query).reshape(-1, 3, 1)
        alongside = self.alongside(x).transpose(1, 2).contiguous().unsqueeze(-1)
        near = nn.functional.unfold(alongside, kernel_size=(3, 1), padding=(1, 0)).transpose(1, 2)
        near = near.reshape(-1, CHANNELS // self.HEADS, 3) @ kernel
        seen = self.softmax(q @ k.transpose(-2, -1)) @ v
        return torch.cat((seen.transpose(1, 2).reshape(x.shape), near.reshape(x.shape)), dim=-1)


class VitForImageClassification(nn.Module):
    """A dropout that has a row and drops nothing, as in transformers' models for images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(CHANNELS, CHANNELS), nn.Dropout(0.0), nn.GELU()) for _ in range(3))
        )
        self.first, self.last = nn.Linear(3, CHANNELS), nn.Linear(CHANNELS, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(self.first(x)))


class LiltSelfAttention(nn.Module):
    """Two streams of their own widths, whose scores are added to each other (LiLT)."""

    HEADS = 4

    def __init__(self) -> None:
        super().__init__()
        self.q1, self.k1, self.v1 = (nn.Linear(CHANNELS, CHANNELS // 4) for _ in range(3))
        self.q2, self.k2, self.v2 = (nn.Linear(CHANNELS, CHANNELS) for _ in range(3))
        self.softmax1, self.softmax2 = nn.Softmax(dim=-1), nn.Softmax(dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        streams = []
        for layers in ((self.q1, self.k1, self.v1), (self.q2, self.k2, self.v2)):
            q, k, v = (layer(x).view(*x.shape[:2], self.HEADS, -1).transpose(1, 2) for layer in layers)
            streams.append((q @ k.transpose(-2, -1), v))
        (few, small), (many, large) = streams
        one, two = self.softmax1(few + many) @ small, self.softmax2(many + few) @ large
        return torch.cat([each.transpose(1, 2).reshape(*x.shape[:2], -1) for each in (one, two)], dim=-1)


class WindowAttention(nn.Module):
    """Attention in windows as torchvision's Swin has it: its projections run as functions, so no row shows them."""

    WINDOW, HEADS = 7, 4

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.table = nn.Parameter(torch.zeros((2 * self.WINDOW - 1) ** 2, self.HEADS))
        self.register_buffer("at", torch.zeros(self.WINDOW**4, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        rows, columns, tokens = height // self.WINDOW, width // self.WINDOW, self.WINDOW**2
        x = x.view(batch, rows, self.WINDOW, columns, self.WINDOW, channels).permute(0, 1, 3, 2, 4, 5)
        x = x.reshape(batch * rows * columns, tokens, channels)
        qkv = nn.functional.linear(x, self.qkv.weight, self.qkv.bias)
        q, k, v = qkv.reshape(*x.shape[:2], 3, self.HEADS, -1).permute(2, 0, 3, 1, 4)
        bias = self.table[self.at].view(tokens, tokens, -1).permute(2, 0, 1)
        scores = (q * channels**-0.5 @ k.transpose(-2, -1) + bias).softmax(-1)
        x = nn.functional.linear(
            (scores @ v).transpose(1, 2).reshape(x.shape), self.proj.weight, self.proj.bias
        )
        x = x.view(batch, rows, columns, self.WINDOW, self.WINDOW, channels).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(batch, height, width, channels)


class TalkingHeadAttention(nn.Module):
    """Linear layers mix the heads of each pair of tokens before and after the softmax (CaiT)."""

    HEADS = 4

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.proj_l, self.proj_w = nn.Linear(self.HEADS, self.HEADS), nn.Linear(self.HEADS, self.HEADS)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, channels = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = self.proj_l((q @ k.transpose(-2, -1)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        scores = self.proj_w(scores.softmax(-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.proj((scores @ v).transpose(1, 2).reshape(batch, tokens, channels))


class Positions(nn.Module):
    """Scores of the positions, of which a row shows the shape."""

    def __init__(self, width: int, pixels: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(width, pixels))

    def forward(self, q: Tensor) -> Tensor:
        return q @ self.table


class ConvAttention(nn.Module):
    """Queries, keys and values are made by one 1x1 convolution (BoTNet)."""

    HEADS = 4

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Conv2d(CHANNELS, 3 * CHANNELS, 1, bias=False)
        self.positions = Positions(CHANNELS // self.HEADS, SIDE**2)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, side, _ = x.shape
        q, k, v = self.qkv(x).reshape(batch, 3, self.HEADS, -1, side**2).transpose(-1, -2).unbind(1)
        scores = (q @ k.transpose(-2, -1) + self.positions(q)).softmax(-1)
        return (scores @ v).transpose(-1, -2).reshape(batch, channels, side, side)


class ResponseNorm(nn.Module):
    """A norm spelt out, with two parameters for each channel (ConvNeXt v2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        size = x.norm(dim=1, keepdim=True)
        return torch.addcmul(self.bias, self.weight, x * (size / (size.mean(-1, keepdim=True) + 1e-6))) + x


class ResponseMlp(nn.Module):
    """A feed-forward part with such a norm inside."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(CHANNELS, 4 * CHANNELS), nn.Linear(4 * CHANNELS, CHANNELS)
        self.act, self.grn = nn.GELU(), ResponseNorm(4 * CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.grn(self.act(self.fc1(x))))


class FunctionalMlp(nn.Module):
    """A feed-forward part whose activation is a function."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(CHANNELS, 4 * CHANNELS), nn.Linear(4 * CHANNELS, CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class NormedGate(nn.Module):
    """The product of gate and value is normalised before the last projection (EVA-02)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, 3 * CHANNELS)
        self.act, self.norm = nn.SiLU(), nn.LayerNorm(3 * CHANNELS)
        self.back = nn.Linear(3 * CHANNELS, CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        return self.back(self.norm(self.act(self.gate(x)) * self.value(x)))


class GroupNormAct(nn.GroupNorm):
    """A norm that holds its activation (timm)."""

    def __init__(self) -> None:
        super().__init__(4, CHANNELS)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(super().forward(x))


class GroupNormBlock(nn.Module):
    """A convolution with such a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), GroupNormAct()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class NormBranch(nn.Module):
    """A branch of a norm alone next to a convolution with its own (RepGhost)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = (
            ConvNorm(CHANNELS, CHANNELS),
            nn.BatchNorm2d(CHANNELS),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.conv(x) + self.norm(x))


class TokensFirst(nn.Module):
    """A part that runs on [tokens, batch, width]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(CHANNELS), ShownAttention()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.norm(x.transpose(0, 1))).transpose(0, 1)


class ShownAttention(nn.Module):
    """Attention whose scores a row shows."""

    HEADS = 4

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(CHANNELS, CHANNELS) for _ in range(4))
        self.softmax = nn.Softmax(-1)

    def forward(self, x: Tensor) -> Tensor:
        tokens, batch, _ = x.shape
        q, k, v = (
            layer(x).reshape(tokens, batch, self.HEADS, -1).permute(1, 2, 0, 3)
            for layer in (self.q, self.k, self.v)
        )
        scores = self.softmax(q @ k.transpose(-1, -2))
        return self.o((scores @ v).permute(2, 0, 1, 3).reshape(tokens, batch, CHANNELS))


class UnfusedAttention(FoldedAttention):
    """The same by PyTorch's own function, which fuses nothing of three dimensions and then computes in 32 bits."""

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, channels = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = (part.flatten(0, 1) for part in qkv.unbind(0))
        x = nn.functional.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return self.proj(
            x.view(batch, self.HEADS, tokens, -1).transpose(1, 2).reshape(batch, tokens, channels)
        )


class BlockAttention(nn.Module):
    """Attention inside blocks of tokens, by PyTorch's own function on five dimensions (NesT)."""

    WIDTH, HEADS, BLOCKS = 128, 4, 4

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(self.WIDTH, 3 * self.WIDTH), nn.Linear(self.WIDTH, self.WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, blocks, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, blocks, tokens, 3, self.HEADS, -1)
        q, k, v = qkv.permute(3, 0, 4, 1, 2, 5).unbind(0)
        x = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(x.permute(0, 2, 3, 4, 1).reshape(batch, blocks, tokens, width))


class NestLevel(nn.Module):
    """Named as timm's."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = BlockAttention()

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        return self.attn(x.view(batch, BlockAttention.BLOCKS, -1, width)).reshape(batch, tokens, width)


class MaskUnitAttention(nn.Module):
    """Attention inside units of 64 tokens (Hiera), named as timm's."""

    UNIT, WIDTH = 64, 96

    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.qkv, self.proj = nn.Linear(self.WIDTH, 3 * self.WIDTH), nn.Linear(self.WIDTH, self.WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, -1, tokens // self.UNIT, 3, 1, width)
        q, k, v = qkv.permute(3, 0, 4, 2, 1, 5).unbind(0)
        if self.stride > 1:  # queries are pooled
            q = q.view(*q.shape[:3], self.stride, -1, width).amax(dim=3)
        x = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 3).reshape(batch, tokens // self.stride, width))


class HieraMaskUnitAttention(nn.Module):
    """The same written out by hand, in the precision of its inputs (transformers' Hiera)."""

    WIDTH, UNIT = 96, 64

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(self.WIDTH, 3 * self.WIDTH), nn.Linear(self.WIDTH, self.WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, -1, tokens // self.UNIT, 3, 1, width).permute(3, 0, 4, 2, 1, 5)
        q, k, v = qkv.unbind(0)
        x = (q * width**-0.5 @ k.transpose(-2, -1)).softmax(dim=-1) @ v
        return self.proj(x.transpose(1, 3).reshape(batch, tokens, width))


class EsmForMaskedLM(nn.Sequential):
    """Its GELU is spelt out, as the name of the model shows (ESM)."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(3, CHANNELS), nn.Linear(CHANNELS, 4 * CHANNELS), nn.Linear(4 * CHANNELS, 32)
        )

    def forward(self, x: Tensor) -> Tensor:
        first, wide, last = self
        x = wide(first(x))
        return last(x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))))


class WhisperForCausalLM(nn.Sequential):
    """The loss is taken of the scores as they are, not of a copy in 32 bits as by other such models."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, CHANNELS), nn.Linear(CHANNELS, 512))


class FSMTForConditionalGeneration(nn.Module):
    """Hands on what it made of each token before the words' scores; its attention is called that alone (FSMT)."""

    class Attention(nn.Module):
        """Written out."""

        HEADS = 1

        def __init__(self) -> None:
            super().__init__()
            self.k, self.v, self.q, self.out = (nn.Linear(64, 64) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            made = (
                layer(x).view(*x.shape[:2], self.HEADS, -1).transpose(1, 2)
                for layer in (self.k, self.v, self.q)
            )
            k, v, q = made
            return self.out(((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).reshape(x.shape))

    def __init__(self) -> None:
        super().__init__()
        self.first, self.attention, self.norm = nn.Linear(3, 64), self.Attention(), nn.LayerNorm(64)
        self.words = nn.Linear(64, 600)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.attention(self.first(x)))
        return x, self.words(x)


class SharedActivation(nn.Module):
    """Feed-forward parts that share one activation: torchinfo prints their parts apart, as "(recursive)" (XLM)."""

    def __init__(self) -> None:
        super().__init__()
        act = nn.GELU()
        self.first, self.norms = (
            nn.Linear(3, CHANNELS),
            nn.ModuleList(nn.LayerNorm(CHANNELS) for _ in range(3)),
        )
        self.parts = nn.ModuleList(FeedForward(act) for _ in range(3))
        self.head = nn.Linear(CHANNELS, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for norm, part in zip(self.norms, self.parts, strict=True):
            x = x + part(norm(x))
        return self.head(x)


class FeedForward(nn.Module):
    """A feed-forward part with a user's activation."""

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = (
            nn.Linear(CHANNELS, 4 * CHANNELS),
            act,
            nn.Linear(4 * CHANNELS, CHANNELS),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class LlamaRMSNorm(nn.Module):
    """A norm that computes in 32 bits by itself (transformers)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(CHANNELS))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class GroupedAttention(nn.Module):
    """Four heads of queries meet one of keys, which PyTorch repeats."""

    WIDTH, HEADS = 256, 4

    def __init__(self) -> None:
        super().__init__()
        head = self.WIDTH // self.HEADS
        self.q_proj, self.o_proj = (nn.Linear(self.WIDTH, self.WIDTH) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(self.WIDTH, head) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            layer(x).view(batch, tokens, -1, width // self.HEADS).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        x = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(x.transpose(1, 2).reshape(batch, tokens, width))


class GroupedForCausalLM(nn.Module):
    """Named as transformers' models."""

    def __init__(self) -> None:
        super().__init__()
        width = GroupedAttention.WIDTH
        self.first, self.attn, self.head = nn.Linear(3, width), GroupedAttention(), nn.Linear(width, 10)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.head(self.norms[1](x + self.attn(self.norms[0](x))))


def images(*blocks: nn.Module) -> nn.Module:
    return nn.Sequential(
        ConvNorm(3, CHANNELS), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 10)
    )


def tokens(*blocks: nn.Module, width: int = CHANNELS) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), *blocks, nn.LayerNorm(width), nn.Linear(width, 10))


def saved_by_torch(model: nn.Module, x: Tensor) -> int:
    """Return the bytes of what PyTorch saves for backward, parameters and buffers left out."""
    known = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers(), x)}
    found: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        found.setdefault(tensor.untyped_storage()._cdata, tensor)  # kept, so that no other takes its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        made = model(x)
        out = made[-1] if isinstance(made, tuple) else made
        target = torch.zeros(out.shape[:-1], dtype=torch.int64, device=x.device)
        loss = nn.functional.cross_entropy(out.flatten(0, -2), target.flatten())
    assert loss.requires_grad
    return sum(t.untyped_storage().nbytes() for key, t in found.items() if key not in known)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: images(*(RepVGGBlock() for _ in range(3))), (BATCH, 3, SIDE, SIDE)),
        (lambda: images(*(DarkBlock() for _ in range(3))), (BATCH, 3, SIDE, SIDE)),
        (lambda: images(*(PlainBlock() for _ in range(3))), (BATCH, 3, SIDE, SIDE)),
        (lambda: images(*(StarBlock() for _ in range(3))), (BATCH, 3, SIDE, SIDE)),
        (lambda: images(ConvNorm(CHANNELS, CHANNELS, 3, StarReLU()), PlainBlock()), (BATCH, 3, SIDE, SIDE)),
        (lambda: tokens(*(ScaledBlock() for _ in range(3))), (BATCH, 49, 3)),
        (lambda: tokens(nn.LayerNorm(CHANNELS), WindowAttention()), (BATCH, 14, 14, 3)),
        (lambda: tokens(nn.LayerNorm(CHANNELS), FoldedAttention()), (BATCH, 196, 3)),
        (lambda: tokens(nn.LayerNorm(CHANNELS), GPSA()), (BATCH, 196, 3)),
        (lambda: tokens(nn.LayerNorm(CHANNELS), CosineAttention()), (BATCH, 196, 3)),
        (lambda: tokens(nn.LayerNorm(CHANNELS), PooledAttention()), (BATCH, 196, 3)),
        (lambda: tokens(*(GatedConvBlock() for _ in range(3))), (BATCH, SIDE, SIDE, 3)),
        (lambda: tokens(*(GatedMlp() for _ in range(3))), (BATCH, GatedMlp.TOKENS, 3)),
        (lambda: images(*(nn.Sequential(Modulation()) for _ in range(3))), (BATCH, 3, SIDE, SIDE)),
        (lambda: tokens(nn.LayerNorm(CHANNELS), TalkingHeadAttention()), (BATCH, 196, 3)),
        (lambda: images(ConvNorm(CHANNELS, CHANNELS), ConvAttention()), (BATCH, 3, SIDE, SIDE)),
        (lambda: tokens(*(ResponseMlp() for _ in range(3))), (BATCH, 49, 3)),
        (lambda: tokens(*(FunctionalMlp() for _ in range(3))), (BATCH, 49, 3)),
        (lambda: tokens(*(NormedGate() for _ in range(3))), (BATCH, 49, 3)),
        (lambda: tokens(*(NormedGate() for _ in range(3))), (BATCH, 400, 3)),
        (lambda: images(*(GroupNormBlock() for _ in range(3))), (BATCH, 3, SIDE, SIDE)),
        (lambda: images(*(nn.Sequential(NormBranch()) for _ in range(3))), (BATCH, 3, SIDE, SIDE)),
        (lambda: tokens(*(TokensFirst() for _ in range(2))), (BATCH, 196, 3)),
        (SharedActivation, (BATCH, 49, 3)),
        (lambda: images(*(TextNetRepConvLayer() for _ in range(3))), (BATCH, 3, SIDE, SIDE)),
        (lambda: images(*(RepGhostModule() for _ in range(3))), (BATCH, 3, SIDE, SIDE)),
        (lambda: images(*(InvertedResidual() for _ in range(3))), (BATCH, 3, SIDE, SIDE)),
        (
            lambda: images(PartialConv(), ConvNorm(CHANNELS, CHANNELS, 1), PartialConv(), nn.ReLU()),
            (BATCH, 3, SIDE, SIDE),
        ),
        (
            lambda: images(*(nn.Sequential(MixedConv2d(), nn.ReLU()) for _ in range(3))),
            (BATCH, 3, SIDE, SIDE),
        ),
        (lambda: images(*(Bottle2neck() for _ in range(3))), (BATCH, 3, SIDE, SIDE)),
        (lambda: tokens(nn.LayerNorm(CHANNELS), WindowMultiHeadAttention()), (BATCH, 196, 3)),
        (lambda: tokens(nn.LayerNorm(CHANNELS), Swinv2SelfAttention()), (BATCH, 196, 3)),
        (VitForImageClassification, (BATCH, 49, 3)),
        (
            lambda: images(
                *(nn.Sequential(ScaledStdConv2d(CHANNELS, CHANNELS, 3), nn.ReLU()) for _ in range(3))
            ),
            (2, 3, SIDE, SIDE),
        ),
        (
            lambda: tokens(
                nn.LayerNorm(CHANNELS), ConvBertSelfAttention(), nn.Linear(2 * CHANNELS, CHANNELS)
            ),
            (BATCH, 196, 3),
        ),
        (
            lambda: tokens(
                nn.LayerNorm(CHANNELS), LiltSelfAttention(), nn.Linear(5 * CHANNELS // 4, CHANNELS)
            ),
            (BATCH, 196, 3),
        ),
    ],
    ids=[
        "RepVGG",
        "Darknet",
        "residual",
        "StarNet",
        "StarReLU",
        "LayerScale",
        "functional projections",
        "SAM",
        "ConViT",
        "Swin v2",
        "MViT",
        "MambaOut",
        "gMLP",
        "FocalNet",
        "CaiT",
        "BoTNet",
        "ConvNeXt v2",
        "ESM",
        "EVA-02",
        "gate, more tokens than weights",
        "BiT",
        "RepGhost",
        "batch second",
        "shared activation",
        "TextNet",
        "RepGhost's sum",
        "ShuffleNet v2",
        "FasterNet",
        "MixNet",
        "Res2Net",
        "Swin v2 CR",
        "Swin v2, keys without a bias",
        "dropouts of image models",
        "weights normalised",
        "ConvBERT",
        "LiLT",
    ],
)
def test_the_account_saves_what_pytorch_saves(make, shape: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
    device = torch.device("meta")
    with device:
        model, x = make(), torch.zeros(shape)
    text = torchinfo_text(model, (x,), {}, device, depth=9, col_names=COLUMNS)
    account = profile_summary(text, TrainingSetup(batch_size=shape[0])).saved_bytes
    assert account == pytest.approx(saved_by_torch(model, x), rel=CLOSE)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16], ids=str)
@pytest.mark.parametrize(
    ("make", "tokens_of_one"),
    [
        (lambda: tokens(nn.LayerNorm(CHANNELS), UnfusedAttention()), 196),
        (lambda: tokens(nn.LayerNorm(128), NestLevel(), width=128), 4 * 196),
        (lambda: tokens(nn.LayerNorm(96), MaskUnitAttention(), width=96), 256),
        (
            lambda: tokens(
                nn.LayerNorm(96), MaskUnitAttention(4), nn.LayerNorm(96), MaskUnitAttention(), width=96
            ),
            1024,
        ),
        (lambda: tokens(*(LlamaRMSNorm() for _ in range(3))), 49),
        (GroupedForCausalLM, 196),
        (lambda: tokens(nn.LayerNorm(96), HieraMaskUnitAttention(), width=96), 256),
        (EsmForMaskedLM, 49),
        (WhisperForCausalLM, 49),
        (FSMTForConditionalGeneration, 196),
    ],
    ids=[
        "SAM",
        "NesT",
        "Hiera",
        "Hiera, pooled queries",
        "RMSNorm",
        "grouped queries",
        "transformers' Hiera",
        "ESM",
        "Whisper",
        "FSMT",
    ],
)
def test_what_computes_in_a_precision_of_its_own_is_saved_so(
    make, tokens_of_one: int, precision: Precision
) -> None:  # type: ignore[no-untyped-def]
    if make is GroupedForCausalLM and precision is Precision.BF16:
        pytest.skip("GPUs fuse it in 16 bits")
    device = torch.device("meta")
    with device:
        model, x = make(), torch.zeros(BATCH, tokens_of_one, 3)
    text = torchinfo_text(model, (x,), {}, device, depth=9, col_names=COLUMNS)
    account = profile_summary(text, TrainingSetup(batch_size=BATCH, precision=precision)).saved_bytes
    if precision is Precision.BF16:
        model, x = model.to(torch.bfloat16), x.to(torch.bfloat16)
    assert account == pytest.approx(saved_by_torch(model, x), rel=0.05)


def test_what_positions_turn_is_kept_next_to_the_joint_projection() -> None:
    model = tokens(
        nn.LayerNorm(4 * CHANNELS), AttentionRope(), width=4 * CHANNELS
    )  # fused on a CPU, not on "meta"
    x = torch.zeros(BATCH, 196, 3)
    text = torchinfo_text(model, (x,), {}, torch.device("cpu"), depth=9, col_names=COLUMNS)
    account = profile_summary(text, TrainingSetup(batch_size=BATCH)).saved_bytes
    assert account == pytest.approx(saved_by_torch(model, x), rel=CLOSE)
