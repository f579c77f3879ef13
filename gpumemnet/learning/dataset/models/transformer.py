"""Transformers (thesis Table 5.6): encoder, decoder, encoder-decoder, ViT, windowed ViT, and PyTorch's layers."""

from __future__ import annotations

from typing import Any

from torch import nn

from gpumemnet.learning.dataset.config import TensorSpec
from gpumemnet.learning.dataset.draw import Draw, Drawn
from gpumemnet.learning.dataset.models.transformer_parts import (
    EncoderDecoder,
    LanguageModel,
    TorchTransformer,
    VisionTransformer,
)

STYLES = ("encoder", "decoder", "encoder_decoder", "vit", "window_vit", "torch_encoder", "torch_seq2seq")
LOSS = "cross_entropy"
IMAGE_STYLES = ("vit", "window_vit")


def draw(d: Draw, style: str) -> Drawn:
    """Draw width, depth, heads, vocabulary, sequence length and kind of attention; arguments as for `cnn.draw`."""
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


def build(style: str, arch: dict[str, Any]) -> nn.Module:
    """Build the transformer; arguments as for `cnn.build`."""
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
