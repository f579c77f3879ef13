"""Find attention in a list of layers: the linear layers that make queries, keys and values.

Between those projections and the output projection no module runs (fused attention), or only a dropout or softmax over
the scores. The path of containers or the order of rows shows the place.
"""

from __future__ import annotations

import math
import re

from gpumemnet.names import Group
from gpumemnet.summaries.graph.attention import head_rows
from gpumemnet.summaries.graph.attention.mask_units import in_units
from gpumemnet.summaries.graph.attention.site import (
    AttentionSite,
    ContainerPath,
    out_of,
    own_parameters,
    reads,
    same_width,
)
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.model_names import blocks_of_tokens, writes_scores
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.summaries.texts.widths import widening

_ATTENTION = r"(?i:att|mhs?a|msa|gpsa|^xca$)"
_ROLE = r"(?:^|[^a-z])(q|k|v|qkv|kv|query|key|value|query_key_value|in_proj|c_attn|wq|wk|wv)(?:[^a-z]|$)"


_BLOCK_HEAD = 32
"""Head width of NesT, the only model whose blocks of tokens are a separate dimension."""
_MOST_HEADS = 64
_NEAR = 3
"""Maximum distance in rows from the projections to their scores."""


def find_sites(layers: tuple[Layer, ...]) -> dict[int, AttentionSite]:
    """Find the attention operations.

    Args:
        layers: In running order.

    Returns:
        Sites by the index of their last projection.
    """
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    loose: list[int] = []
    by_width = _by_width(layers)
    for index, layer in enumerate(layers):
        if not layer.runs or layer.is_block or kinds.group_of(layer.kind) is not Group.LINEAR:
            continue
        depth = max((at for at, (cls, name) in enumerate(layer.path) if is_attention(cls, name)), default=-1)
        if depth < 0 and layer.path in by_width:
            depth = len(layer.path) - 1
        if depth >= 0:
            groups.setdefault(layer.path[: depth + 1], []).append(index)
        elif not layer.path:
            loose.append(index)
    drops = {layer.path for layer in layers if kinds.group_of(layer.kind) is Group.DROPOUT}
    sites = [
        site
        for path, found in groups.items()
        for site in _in_streams(layers, path, found, drops=path in drops)
    ]
    sites = in_units(layers, sites)
    sites += _in_rows(layers, loose)
    return {site.projections[-1]: site for site in sites if site is not None}


def _by_width(layers: tuple[Layer, ...]) -> set[ContainerPath]:
    """Return modules that are attention by their widths: of two linear layers one makes three parts of tokens."""
    inside: dict[ContainerPath, list[Layer]] = {}
    for layer in layers:
        if (
            layer.runs
            and layer.path
            and not layer.is_block
            and kinds.group_of(layer.kind) is not Group.DROPOUT
        ):
            inside.setdefault(layer.path, []).append(layer)
    return {path for path, found in inside.items() if len(found) == 2 and _three_parts(*found)}


def _three_parts(joint: Layer, last: Layer) -> bool:
    made, width = out_of(joint), (out_of(last) or (0,))[-1] or 0
    both = all(kinds.group_of(layer.kind) is Group.LINEAR for layer in (joint, last))
    return (
        both and len(made) == 3 and width > 0 and made[-1] == 3 * width == 3 * reads(joint) == 3 * reads(last)
    )


def is_attention(cls: str, name: str) -> bool:
    """Return whether a module is attention, by its class or its local name."""
    return bool(re.search(_ATTENTION, cls) or re.search(_ATTENTION, name))


def _local_name(layer: Layer) -> str:
    inside = re.search(r"\((\w+)\)", layer.name)
    return (inside.group(1) if inside else layer.name).lower()


def head_width(sites: dict[int, AttentionSite], layers: tuple[Layer, ...]) -> int | None:
    """Return the width of one head, from the widths of all attention of a model; None without attention.

    Most published transformers have heads of 64; if not all widths are multiples of 64, heads of 32 are assumed (vision
    models whose width grows per stage).

    Args:
        sites: Output of `find_sites`.
        layers: The layers of these sites.
    """
    widths = [
        (out_of(layers[site.projections[0]])[-1] or 0) // (3 if len(site.projections) == 1 else 1)
        for site in sites.values()
        if out_of(layers[site.projections[0]])
    ]
    common = math.gcd(*widths)
    return (32 if common % 64 and not common % 32 else 64) if common else None


def _in_streams(
    layers: tuple[Layer, ...], path: ContainerPath, found: list[int], *, drops: bool
) -> list[AttentionSite | None]:
    """Find the attention of a module; two if it has streams of different widths, text and layout (LiLT).

    Their scores are added to each other, so both are materialized.
    """
    parts = (found[:3], found[3:])
    widths = {out_of(layers[part[0]])[-1:] for part in parts if part}
    if len(found) != 6 or len(widths) != 2 or not all(same_width(layers, part) for part in parts):
        return [_in_container(layers, path, found, drops=drops)]
    sites = [_in_container(layers, path, part, drops=drops) for part in parts]
    one, other = sites
    if one is None or other is None or other.scores is None:
        return sites
    last = other.scores + 1
    both = out_of(layers[other.scores]) == out_of(layers[min(last, len(layers) - 1)])
    return [
        one._replace(scores=other.scores, eager=True),
        other._replace(scores=last if both else other.scores),
    ]


def _in_container(
    layers: tuple[Layer, ...], path: ContainerPath, found: list[int], *, drops: bool
) -> AttentionSite | None:
    container = path[-1][0]
    width = None
    over = tuple(index for index in found if _over_scores(layers[index]))
    found = [index for index in found if index not in over]
    named = [index for index in found if re.search(_ROLE, _role_text(layers[index]))]
    if named:
        projections = tuple(named[:3])
    elif (apart := _values_apart(layers, found)) is not None:
        projections, width = (found[0], apart), reads(layers[found[0]])
    elif len(found) >= 3 and same_width(layers, found[:3]):
        projections = tuple(found[:3])
    elif len(found) == 2 and _few_keys(layers, *found):
        projections, width = (found[0],), reads(layers[found[0]])
    elif found and widening(layers[found[0]], unknown=0.0) >= 1.5:
        projections = (found[0],)
    else:
        return None
    kernel = _next_to_a_convolution(layers, found)
    scores = _scores_after(layers, found[-1] if kernel else projections[-1])
    heads = head_rows.find(layers, path, projections)
    folded = len(out_of(layers[projections[0]])) == 3  # blocks of tokens may be part of the batch
    eager = scores is not None or writes_scores(container, path[0][0]) or len(over) > 1
    blocks = not folded and blocks_of_tokens(cls for cls, _ in path)
    spelt_out = not eager and (blocks or (heads is not None and heads.folded))
    shown = out_of(layers[scores])[1] if scores is not None and len(out_of(layers[scores])) == 4 else None
    return AttentionSite(
        projections=projections,
        scores=scores,
        eager=eager or spelt_out,
        container=container,
        width=width,
        drops=drops,
        heads=heads.number if heads else _block_heads(layers[projections[0]]) if blocks else None,
        over=over,
        spelt_out=spelt_out,
        cosine=shown is not None and own_parameters(layers, path, projections[0]) == shown,
        windows=kernel // shown if kernel and shown else 0,
    )


def _next_to_a_convolution(layers: tuple[Layer, ...], found: list[int]) -> int:
    """Return the per-head features of the layer that makes a convolution's kernel at each token; 0 if none does.

    That layer and one for the convolution's input follow queries, keys and values (ConvBERT).
    """
    if len(found) != 5 or not same_width(layers, found[:3]):
        return 0
    width, kernel, convolved = (
        (out_of(layers[at]) or (0,))[-1] or 0 for at in (found[0], found[3], found[4])
    )
    return kernel if kernel < width == convolved == reads(layers[found[3]]) else 0


def _block_heads(joint: Layer) -> int:
    """Return the number of heads of attention over blocks of tokens, from its joint projection."""
    return max((out_of(joint)[-1] or 0) // 3 // _BLOCK_HEAD, 1)


def _over_scores(layer: Layer) -> bool:
    """Return whether a linear layer works on the heads of [batch, tokens, tokens, heads]."""
    made, heads = out_of(layer), (out_of(layer) or (0,))[-1] or 0
    square = len(made) == 4 and made[1] == made[2] and 1 < heads <= min(made[1] or 0, _MOST_HEADS)
    if not square or not layer.input_shapes:
        return square and layer.params == heads * heads + heads
    return layer.input_shapes[0] == made


def _values_apart(layers: tuple[Layer, ...], found: list[int]) -> int | None:
    """Return the layer of the values if the first one makes queries and keys together (TNT, ConViT)."""
    if len(found) < 3 or (out_of(layers[found[0]]) or (0,))[-1] != 2 * reads(layers[found[0]]):
        return None
    width = reads(layers[found[0]])
    return next(
        (
            index
            for index in found[1:3]
            if reads(layers[index]) == width and (out_of(layers[index]) or (0,))[-1] == width
        ),
        None,
    )


def _few_keys(layers: tuple[Layer, ...], first: int, second: int) -> bool:
    """Return whether the first of two layers makes all queries and fewer heads of keys and values (multi-query)."""
    made, read = (out_of(layers[first]) or (0,))[-1] or 0, reads(layers[first])
    return 0 < read < made < 2 * read and reads(layers[second]) == read and not (made - read) % 2


def _role_text(layer: Layer) -> str:
    return re.sub(r"_(proj|lin|linear)\b", "", _local_name(layer))


def _in_rows(layers: tuple[Layer, ...], loose: list[int]) -> list[AttentionSite]:
    """Find attention without containers: three linear layers on tokens in a row, or one of triple width."""
    sites: list[AttentionSite] = []
    at = 0
    while at < len(loose):
        index = loose[at]
        out = out_of(layers[index])
        run = [other for other in loose[at : at + 3] if other - index < 6]
        if len(out) >= 3 and len(run) == 3 and same_width(layers, run) and _only_idle(layers, index, run[-1]):
            sites.append(
                AttentionSite(projections=tuple(run), scores=_scores_after(layers, run[-1]), eager=False)
            )
            at += 3
            continue
        following = loose[at + 1] if at + 1 < len(loose) else None
        if (
            len(out) >= 3
            and following is not None
            and (out[-1] or 0) % 3 == 0
            and reads(layers[following]) == (out[-1] or 0) // 3
            and _only_idle(layers, index, following)
        ):
            sites.append(
                AttentionSite(projections=(index,), scores=_scores_after(layers, index), eager=False)
            )
        at += 1
    return [
        AttentionSite(projections=site.projections, scores=site.scores, eager=site.scores is not None)
        for site in sites
    ]


def _only_idle(layers: tuple[Layer, ...], start: int, end: int) -> bool:
    return all(
        kinds.group_of(layers[at].kind) in (Group.LINEAR, Group.DROPOUT, Group.VIEW, Group.LAYERNORM)
        or layers[at].kind == "softmax"
        for at in range(start + 1, end)
    )


def _scores_after(layers: tuple[Layer, ...], index: int) -> int | None:
    """Return the index of a following softmax or dropout over scores, identified by its shape.

    Rows of an inner module, which makes a bias from the tokens' distances, may come before.
    """
    inside, seen = layers[index].path, 0
    for at in range(index + 1, len(layers)):
        layer = layers[at]
        deeper = len(layer.path) > len(inside) > 0 and layer.path[: len(inside)] == inside
        seen += not deeper
        if seen > _NEAR or (inside and layer.path[: len(inside)] != inside):
            return None
        group = kinds.group_of(layer.kind)
        if group is Group.LINEAR and not deeper:
            return None
        shape = out_of(layer)
        if layer.runs and (group is Group.DROPOUT or layer.kind == "softmax") and len(shape) >= 3:
            wide = out_of(layers[index])
            if shape[-1] == shape[-2] and (len(shape) > len(wide) or shape[-1] != wide[-1]):
                return at
    return None
