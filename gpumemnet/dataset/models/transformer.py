"""Transformers (thesis Table 5.6): encoder, decoder, encoder-decoder, ViT, windowed ViT, and PyTorch's own layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.dataset.config import TensorSpec
from gpumemnet.dataset.draw import Draw, Drawn
from gpumemnet.dataset.models.attention import Block, norm
from gpumemnet.dataset.models.layers import run_blocks

STYLES = ("encoder", "decoder", "encoder_decoder", "vit", "window_vit", "torch_encoder", "torch_seq2seq")
LOSS = "cross_entropy"
IMAGE_STYLES = ("vit", "window_vit")


def draw(d: Draw, style: str) -> Drawn:
    """Draw width, depth, heads, vocabulary, sequence length, attention kind and layer details.

    Args:
        d: Source of random choices.
        style: Style of the family, as in the names of its styles.
    """
    head_dim = d.choice((16, 32, 48, 64, 64, 80, 96, 128))
    heads = d.integer(2, 20)
    dim = head_dim * heads
    layers = d.integer(1, 24) if dim > 1024 else d.integer(1, 36)
    image = style in IMAGE_STYLES
    modern = style == "decoder" and d.chance(0.5)
    arch: dict[str, Any] = {
        "dim": dim,
        "heads": heads,
        "kv_heads": d.choice([k for k in range(1, heads + 1) if heads % k == 0]) if modern else heads,
        "layers": layers,
        "hidden": int(dim * d.choice((2, 2.67, 3, 4, 4, 4))) // 8 * 8,
        "dropout": 0.0 if modern else d.choice((0.0, 0.1, 0.1, 0.2, 0.3, 0.5)),
        "attention": d.choice(("fused", "unfused")),
        "torch_attention": not modern and d.chance(0.2),
        "joint_qkv": d.chance(0.5),
        "bias": not modern,
        "norm": "rms" if modern else "layer",
        "pre_norm": modern or d.chance(0.6),
        "mlp": "swiglu" if modern else d.choice(("gelu", "gelu", "relu")),
        "positions": "rotary" if modern else "learned",
    }
    if image:
        arch["patch"] = d.choice((4, 8, 14, 16, 16, 32))
        arch["window"] = d.choice((4, 7, 8))
        side = d.integer(6, 32)
        if style == "window_vit":
            side = max(1, side // arch["window"]) * arch["window"]
        arch |= {"image": side * arch["patch"], "channels": 3, "classes": d.log_integer(2, 22000)}
        seq = side * side
    else:
        seq = d.choice((64, 128, 128, 256, 256, 384, 512, 512, 768, 1024, 1024, 2048))
        vocab = d.log_integer(1000, 250000)
        task = (
            "tokens"
            if style in ("decoder", "encoder_decoder", "torch_seq2seq")
            else d.choice(("classify", "tokens"))
        )
        arch |= {"seq_len": seq, "vocab": vocab, "task": task, "classes": d.log_integer(2, 1000)}
        arch["tied"] = style in ("encoder", "decoder") and d.chance(0.4)
        arch["pair"] = style in ("encoder_decoder", "torch_seq2seq")
    doubled = 2 if style in ("encoder_decoder", "torch_seq2seq") else 1
    scores = seq if style != "window_vit" else arch["window"] ** 2
    per_token = dim * 14 + arch["hidden"] * 3 + (heads * scores * 3 if arch["attention"] == "unfused" else 0)
    elements = doubled * layers * seq * per_token
    params = doubled * layers * (4 * dim * dim + 2 * dim * arch["hidden"])
    if not image:
        elements += 2 * seq * arch["vocab"] if arch["task"] == "tokens" else 0
        params += arch["vocab"] * dim * (1 if arch.get("tied") else 2)
    return Drawn(
        arch=arch,
        elements_per_sample=elements,
        params=params,
        batch_range=(1, 512),
        seq_len=None if image else seq,
        checkpointable=not style.startswith("torch_"),
    )


class LanguageModel(nn.Module):
    """Encoder or decoder over tokens, with a head for each token or one for the sequence."""

    def __init__(self, style: str, arch: dict[str, Any]) -> None:
        super().__init__()
        self.checkpointing, self.task = False, arch["task"]
        self.embed = nn.Embedding(arch["vocab"], arch["dim"])
        self.position = nn.Embedding(arch["seq_len"], arch["dim"]) if arch["positions"] == "learned" else None
        self.dropout = nn.Dropout(arch["dropout"])
        self.blocks = nn.ModuleList(Block(arch, causal=style == "decoder") for _ in range(arch["layers"]))
        self.norm = norm(arch)
        classes = arch["vocab"] if arch["task"] == "tokens" else arch["classes"]
        if arch["tied"] and arch["task"] == "tokens":
            # Made without memory of its own, so that no freed block is left behind where models are built on the GPU.
            self.head = nn.Linear(arch["dim"], classes, bias=False, device="meta")
            self.head.weight = self.embed.weight
        else:
            self.head = nn.Linear(arch["dim"], classes, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores over the vocabulary or over the classes."""
        x = self.embed(tokens)
        if self.position is not None:
            x = x + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.norm(run_blocks(self.blocks, self.dropout(x), self.checkpointing))
        scores: Tensor = self.head(x if self.task == "tokens" else x.mean(1))
        return scores


class EncoderDecoder(nn.Module):
    """Encoder over the source, decoder with cross-attention over the target."""

    def __init__(self, arch: dict[str, Any]) -> None:
        super().__init__()
        self.checkpointing = False
        self.embed = nn.Embedding(arch["vocab"], arch["dim"])
        self.position = nn.Embedding(arch["seq_len"], arch["dim"])
        self.encoder = nn.ModuleList(Block(arch, causal=False) for _ in range(arch["layers"]))
        self.decoder = nn.ModuleList(Block(arch, causal=True, cross=True) for _ in range(arch["layers"]))
        self.norm = norm(arch)
        self.head = nn.Linear(arch["dim"], arch["vocab"], bias=False)

    def forward(self, source: Tensor, tokens: Tensor) -> Tensor:
        """Return scores over the vocabulary for each target token.

        Args:
            source: Tokens that are read, (batch, length).
            tokens: Tokens so far, (batch, length).
        """
        place = self.position(torch.arange(source.shape[1], device=source.device))
        memory = run_blocks(self.encoder, self.embed(source) + place, self.checkpointing)
        x = run_blocks(self.decoder, self.embed(tokens) + place, self.checkpointing, memory)
        scores: Tensor = self.head(self.norm(x))
        return scores


class TorchTransformer(nn.Module):
    """PyTorch's nn.TransformerEncoder or nn.Transformer between an embedding and a head."""

    def __init__(self, style: str, arch: dict[str, Any]) -> None:
        super().__init__()
        self.task, self.pair = arch["task"], style == "torch_seq2seq"
        dim = arch["dim"]
        self.embed = nn.Embedding(arch["vocab"], dim)
        common = {"dropout": arch["dropout"], "activation": "relu" if arch["mlp"] == "relu" else "gelu"}
        common |= {"batch_first": True, "norm_first": arch["pre_norm"]}
        if self.pair:
            self.transformer: nn.Module = nn.Transformer(
                dim, arch["heads"], arch["layers"], arch["layers"], arch["hidden"], **common
            )
        else:
            layer = nn.TransformerEncoderLayer(dim, arch["heads"], arch["hidden"], **common)
            self.transformer = nn.TransformerEncoder(layer, arch["layers"], enable_nested_tensor=False)
        self.head = nn.Linear(dim, arch["vocab"] if self.task == "tokens" else arch["classes"])

    def forward(self, source: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Return scores over the vocabulary or over the classes.

        Args:
            source: Tokens that are read, (batch, length).
            tokens: Tokens so far, (batch, length); None for a classifier.
        """
        if self.pair:
            assert tokens is not None
            length = tokens.shape[1]
            mask = torch.ones(length, length, dtype=torch.bool, device=source.device).triu(1)
            x = self.transformer(self.embed(source), self.embed(tokens), tgt_mask=mask, tgt_is_causal=True)
        else:
            x = self.transformer(self.embed(source))
        scores: Tensor = self.head(x if self.task == "tokens" else x.mean(1))
        return scores


class VisionTransformer(nn.Module):
    """Patches, blocks (over all patches or within windows), mean and a linear head."""

    def __init__(self, style: str, arch: dict[str, Any]) -> None:
        super().__init__()
        self.checkpointing = False
        self.side, self.window = (
            arch["image"] // arch["patch"],
            arch["window"] if style == "window_vit" else 0,
        )
        self.patch_embed = nn.Conv2d(arch["channels"], arch["dim"], arch["patch"], arch["patch"])
        self.pos_embed = nn.Parameter(torch.zeros(1, self.side**2, arch["dim"]))
        self.dropout = nn.Dropout(arch["dropout"])
        self.blocks = nn.ModuleList(Block(arch, causal=False) for _ in range(arch["layers"]))
        self.norm = norm(arch)
        self.head = nn.Linear(arch["dim"], arch["classes"])

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores."""
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = self.dropout(x + self.pos_embed)
        if self.window:
            cells, w = self.side // self.window, self.window
            x = x.unflatten(1, (cells, w, cells, w)).transpose(2, 3).flatten(3, 4).flatten(0, 2)
            x = run_blocks(self.blocks, x, self.checkpointing)
            x = x.unflatten(0, (-1, cells * cells)).flatten(1, 2)
        else:
            x = run_blocks(self.blocks, x, self.checkpointing)
        scores: Tensor = self.head(self.norm(x).mean(1))
        return scores


def build(style: str, arch: dict[str, Any]) -> nn.Module:
    """Build the transformer.

    Args:
        style: Style that was drawn.
        arch: Architecture that was drawn: numbers and words by name.
    """
    if style in IMAGE_STYLES:
        return VisionTransformer(style, arch)
    if style == "encoder_decoder":
        return EncoderDecoder(arch)
    if style.startswith("torch_"):
        return TorchTransformer(style, arch)
    return LanguageModel(style, arch)


def inputs(arch: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the shapes of the inputs: an image, a sequence, or two sequences."""
    if "image" in arch:
        return (TensorSpec(kind="float", shape=(arch["channels"], arch["image"], arch["image"])),)
    tokens = TensorSpec(kind="int", shape=(arch["seq_len"],), high=arch["vocab"])
    return (tokens, tokens) if arch.get("pair") else (tokens,)


def target(arch: dict[str, Any]) -> TensorSpec:
    """Return the shape of the target."""
    if arch.get("task") == "tokens":
        return TensorSpec(kind="int", shape=(arch["seq_len"],), high=arch["vocab"])
    return TensorSpec(kind="int", shape=(), high=arch["classes"])
