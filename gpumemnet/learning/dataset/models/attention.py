"""Attention and feed-forward layers of the transformer family, with and without fused attention."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpumemnet.learning.dataset.models.layers import activation


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in fp32 as language models do."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


def norm(arch: dict[str, Any]) -> nn.Module:
    """Return the norm of the architecture."""
    return RMSNorm(arch["dim"]) if arch["norm"] == "rms" else nn.LayerNorm(arch["dim"])


def rotate(x: Tensor) -> Tensor:
    """Apply rotary positions to (batch, heads, tokens, head dim)."""
    half = x.shape[-1] // 2
    tokens = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
    freqs = 10000 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / max(1, half))
    angle = torch.outer(tokens, freqs)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    """Multi-head attention: fused (scaled_dot_product_attention) or unfused (explicit softmax of the scores)."""

    def __init__(self, arch: dict[str, Any], causal: bool) -> None:
        super().__init__()
        dim = arch["dim"]
        self.heads, self.kv_heads, self.head_dim = arch["heads"], arch["kv_heads"], dim // arch["heads"]
        self.fused, self.causal, self.rotary = (
            arch["attention"] == "fused",
            causal,
            arch["positions"] == "rotary",
        )
        self.joint = arch["joint_qkv"]
        kv_dim = self.kv_heads * self.head_dim
        if self.joint:
            self.qkv = nn.Linear(dim, dim + 2 * kv_dim, bias=arch["bias"])
        else:
            self.q_proj = nn.Linear(dim, dim, bias=arch["bias"])
            self.k_proj = nn.Linear(dim, kv_dim, bias=arch["bias"])
            self.v_proj = nn.Linear(dim, kv_dim, bias=arch["bias"])
        self.out_proj = nn.Linear(dim, dim, bias=arch["bias"])
        self.attn_dropout = nn.Dropout(arch["dropout"])

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """Attend from x to itself, or to `memory` if given.

        Args:
            x: (batch, length, width).
            memory: Sequence to attend to, (batch, other length, width); None for `x`.
        """
        source = x if memory is None else memory
        if self.joint and memory is None:
            sizes = [self.heads * self.head_dim] + [self.kv_heads * self.head_dim] * 2
            q, k, v = self.qkv(x).split(sizes, -1)
        elif self.joint:
            q, k, v = self._cross(x, source)
        else:
            q, k, v = self.q_proj(x), self.k_proj(source), self.v_proj(source)
        q, k, v = (t.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for t in (q, k, v))
        if self.rotary:
            q, k = rotate(q), rotate(k)
        if self.kv_heads != self.heads:
            k = k.repeat_interleave(self.heads // self.kv_heads, 1)
            v = v.repeat_interleave(self.heads // self.kv_heads, 1)
        if self.fused:
            rate = self.attn_dropout.p if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=self.causal)
        else:
            scores = q @ k.transpose(-2, -1) * self.head_dim**-0.5
            if self.causal:
                ahead = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=x.device).triu(1)
                scores = scores.masked_fill(ahead, torch.finfo(scores.dtype).min)
            y = self.attn_dropout(scores.softmax(-1)) @ v
        out: Tensor = self.out_proj(y.transpose(1, 2).flatten(2))
        return out

    def _cross(self, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project queries from x and keys and values from source with one joint weight."""
        q_dim = self.heads * self.head_dim
        weight, bias = self.qkv.weight, self.qkv.bias
        q = F.linear(x, weight[:q_dim], None if bias is None else bias[:q_dim])
        kv = F.linear(source, weight[q_dim:], None if bias is None else bias[q_dim:])
        k, v = kv.chunk(2, -1)
        return q, k, v


class TorchAttention(nn.Module):
    """PyTorch's nn.MultiheadAttention with the same call."""

    def __init__(self, arch: dict[str, Any], causal: bool) -> None:
        super().__init__()
        self.causal, self.weights = causal, arch["attention"] == "unfused"
        self.attn = nn.MultiheadAttention(
            arch["dim"], arch["heads"], dropout=arch["dropout"], bias=arch["bias"], batch_first=True
        )

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """Attend from x to itself, or to `memory` if given.

        Args:
            x: (batch, length, width).
            memory: Sequence to attend to, (batch, other length, width); None for `x`.
        """
        source = x if memory is None else memory
        mask = None
        if self.causal:
            mask = torch.ones(x.shape[1], source.shape[1], dtype=torch.bool, device=x.device).triu(1)
        y: Tensor = self.attn(x, source, source, attn_mask=mask, need_weights=self.weights)[0]
        return y


class FeedForward(nn.Module):
    """Two linear layers with an activation, or the gated SwiGLU form."""

    def __init__(self, arch: dict[str, Any]) -> None:
        super().__init__()
        dim, hidden = arch["dim"], arch["hidden"]
        self.gated = arch["mlp"] == "swiglu"
        self.fc1 = nn.Linear(dim, hidden, bias=arch["bias"])
        if self.gated:
            self.gate = nn.Linear(dim, hidden, bias=arch["bias"])
        self.act = activation("silu" if self.gated else arch["mlp"])
        self.fc2 = nn.Linear(hidden, dim, bias=arch["bias"])
        self.dropout = nn.Dropout(arch["dropout"])

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token separately."""
        y = self.act(self.gate(x)) * self.fc1(x) if self.gated else self.act(self.fc1(x))
        out: Tensor = self.dropout(self.fc2(y))
        return out


class Block(nn.Module):
    """Self-attention, optional cross-attention and feed-forward, norms before or after."""

    def __init__(self, arch: dict[str, Any], *, causal: bool, cross: bool = False) -> None:
        super().__init__()
        kind = TorchAttention if arch["torch_attention"] else Attention
        self.pre = arch["pre_norm"]
        self.norm1, self.attn = norm(arch), kind(arch, causal)
        self.cross = cross
        if cross:
            self.norm3, self.cross_attn = norm(arch), kind(arch, False)
        self.norm2, self.mlp = norm(arch), FeedForward(arch)
        self.dropout = nn.Dropout(arch["dropout"])

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """Run the block.

        Args:
            x: (batch, length, width).
            memory: Sequence to attend to, (batch, other length, width); None for `x`.
        """
        if self.pre:
            x = x + self.dropout(self.attn(self.norm1(x)))
            if self.cross:
                x = x + self.dropout(self.cross_attn(self.norm3(x), memory))
            y: Tensor = x + self.mlp(self.norm2(x))
            return y
        x = self.norm1(x + self.dropout(self.attn(x)))
        if self.cross:
            x = self.norm3(x + self.dropout(self.cross_attn(x, memory)))
        z: Tensor = self.norm2(x + self.mlp(x))
        return z
