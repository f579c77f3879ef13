"""Infer shapes of layers on tokens and features, from the arguments that `print(model)` shows."""

from __future__ import annotations

import math
import re

from gpumemnet.summaries.shapes.walk import LOOK_BACK, POSITIONS, Dims, ShapeWalk, Step
from gpumemnet.summaries.texts.arguments import integer
from gpumemnet.summaries.texts.records import Layer

_PATCH_MERGING = ("merge", "merging")
"""Parts, in lower case, of the names of layers that join neighbouring patches (PatchMerging, merge)."""
_TOKEN_MODELS = ("Transformer", "ViT", "DeiT", "BeiT", "CaiT", "XCiT", "PiT", "DiT", "Mixer")
"""Parts of the class names of models of timm, torchvision and transformers that turn an image into tokens."""
_POOLED = re.compile(r"pooler|pooled|classifier|heads?$|summary|score", re.IGNORECASE)


def layernorm(walk: ShapeWalk, layer: Layer) -> Step:
    """Infer a norm over features.

    Args:
        walk: Shapes and layers so far.
        layer: The layer, with its arguments.
    """
    size = layer.args.get("0")
    width = size[-1] if isinstance(size, tuple) and size else 0
    if len(walk.current) >= 4 and width == walk.current[1] and not layer.kind.endswith("2d"):
        tokens = math.prod(walk.current[2:])
        shape = (
            walk.current if "convnext" in layer.kind or _in_convnext(layer) else (walk.batch, tokens, width)
        )
        return shape, shape, None
    if (
        width
        and walk.current
        and walk.current[-1] != width
        and width % max(walk.current[-1], 1) == 0
        and len(walk.current) == 3
    ):
        merged = width // max(walk.current[-1], 1)  # patch merging joins neighbours
        shape = (walk.current[0], max(walk.current[1] // merged, 1), width)
        return shape, shape, None
    return walk.same()


def embedding(walk: ShapeWalk, layer: Layer) -> Step:
    """Infer a table lookup.

    Args:
        walk: Shapes and layers so far.
        layer: The layer, with its arguments.
    """
    rows, width = integer(layer.args, "num_embeddings"), integer(layer.args, "embedding_dim")
    if not width or ("relative" in layer.name and width < 64):  # a table of scores
        return (), (), None
    if POSITIONS.search(layer.name):
        return (1, walk.seq_len), (1, walk.seq_len, width), None
    if layer.name == "shared":  # encoder and decoder show it again at each use
        walk.embedding = walk.embedding or (rows, width)
        return (), (), None
    walk.embedding = walk.embedding or (rows, width)
    if walk.categories:
        return (walk.batch,), (walk.batch, width), None
    return (walk.batch, walk.seq_len), (walk.batch, walk.seq_len, width), None


def linear(walk: ShapeWalk, layer: Layer) -> Step:
    """Infer a linear layer.

    Args:
        walk: Shapes and layers so far.
        layer: The layer, with its arguments.
    """
    ins, outs = (
        integer(layer.args, "in_features", "nx", default=1),
        integer(layer.args, "out_features", "nf", default=1),
    )
    if not layer.args and layer.params and walk.current:  # older transformers print no sizes for Conv1D()
        ins = walk.current[-1]
        outs = max(layer.params // (ins + 1), 1)
    if not walk.current:
        walk.current = (walk.batch, *walk.given[1:]) if walk.given else (walk.batch, ins)
    source = _for_linear(walk, layer, ins)
    return source, (*source[:-1], outs), None


def _for_linear(walk: ShapeWalk, layer: Layer, ins: int) -> Dims:
    last = walk.current
    name = layer.path[-1][1] if layer.path else ""
    pooled = _POOLED.search(layer.name) or _POOLED.search(name)
    words = walk.embedding == (integer(layer.args, "out_features"), ins)
    per_token = words or "TokenClassification" in walk.root or "QuestionAnswering" in walk.root
    if len(last) == 3 and last[-1] == ins and pooled and not per_token:
        return (walk.batch, ins)
    if last[-1] == ins and len(last) < 4:
        return last
    if len(last) >= 4:
        return _from_image(walk, layer, ins, pooled=bool(pooled))
    joined, rest = divmod(ins, max(last[-1], 1))
    if len(last) == 3 and not rest and joined in (2, 4) and _merges_patches(layer):
        return (last[0], max(last[1] * last[-1] // ins, 1), ins)
    near = (shape for shape in reversed(walk.recent[-LOOK_BACK:]) if shape[-1] == ins and len(shape) < 4)
    found = next(near, None)
    return found or (*last[:-1], ins)


def _from_image(walk: ShapeWalk, layer: Layer, ins: int, *, pooled: bool) -> Dims:
    """Return what a linear layer reads after an image: its pixels, channels last, or all flattened or averaged."""
    last = walk.current
    if last[1] == ins and _in_convnext(layer) and not pooled:
        return (last[0], *last[2:], ins)
    if last[-1] == ins and last[1] != ins:
        return last
    tokens = _is_token_model(walk) or walk.patches == ins
    if last[1] == ins and math.prod(last[2:]) > 1 and not pooled and tokens:
        return (walk.batch, math.prod(last[2:]), ins)
    return (walk.batch, ins)


def attention(walk: ShapeWalk, layer: Layer) -> Step:
    """Infer PyTorch's attention module.

    Args:
        walk: Shapes and layers so far.
        layer: The layer, with its arguments.
    """
    width = integer(layer.args, "embed_dim")
    shape: Dims
    if len(walk.current) >= 4 and width:
        shape = (walk.batch, math.prod(walk.current[2:]) + 1, width)
    elif width:
        shape = (*walk.current[:-1], width) if len(walk.current) == 3 else (walk.batch, walk.seq_len, width)
    else:
        shape = walk.current
    return shape, shape, None


def rnn(walk: ShapeWalk, layer: Layer) -> Step:
    """Infer a recurrent layer.

    Args:
        walk: Shapes and layers so far.
        layer: The layer, with its arguments.
    """
    size, hidden = (
        integer(layer.args, "input_size", default=1),
        integer(layer.args, "hidden_size", default=1),
    )
    source = walk.current if len(walk.current) == 3 else (walk.batch, walk.seq_len, size)
    directions = 2 if layer.args.get("bidirectional") is True else 1
    return source, (*source[:-1], hidden * directions), None


def _merges_patches(layer: Layer) -> bool:
    around = "".join(layer.path[-1]).lower() if layer.path else ""
    return any(part in around for part in _PATCH_MERGING)


def _is_token_model(walk: ShapeWalk) -> bool:
    return walk.embedding is not None or any(part in walk.root for part in _TOKEN_MODELS)


def _in_convnext(layer: Layer) -> bool:
    return any("convnext" in cls.lower() or "cnblock" in cls.lower() for cls, _ in layer.path)
