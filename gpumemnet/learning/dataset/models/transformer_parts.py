"""Networks that transformer.py draws."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.learning.dataset.models.attention import Block, norm
from gpumemnet.learning.dataset.models.layers import run_blocks


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
            # Made without separate memory, so that no freed block remains where models are built on the GPU.
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
