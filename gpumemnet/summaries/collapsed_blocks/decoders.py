"""Layers of language models since GPT-J: fewer norms or biases, shared keys, a feed-forward part with a gate.

A layer's form follows from its parameters, as few of the usual forms add up to the exact number.
Shazeer, GLU Variants Improve Transformer, 2020; Ainslie et al., GQA, 2023; Touvron et al., LLaMA, 2023.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

_MOST_LAYERS = 100
"""Maximum number of layers per row."""
_MULTIPLE = 64
"""Divisor of inner widths."""
_SHARED = (1, 2, 3, 4, 7, 8, 16)
"""Usual numbers of queries per key and value."""
_HEADS = (64, 128)
"""Channels of a head: of keys and values if all queries share one."""
_GATED, _UNGATED, _WIDEST = 8 / 3, 4, 8
"""Feed-forward width over token width: usual with a gate, usual without a gate, and maximum."""
_WITHOUT_BIAS = tuple((2, biases, False) for biases in ("none", "inner"))
_WITH_BIAS = tuple(itertools.product((2, 1), ("all", "inner", "none"), (True, False)))
"""Norms, biases and gate: first for layers whose norms have no bias (RMSNorm), whose feed-forward part is gated; then
for others."""


class DecoderForm(NamedTuple):
    """Contents of one layer.

    Attributes:
        times: Number of layers that the row represents.
        hidden: Inner width of the feed-forward part.
        keys: Width of the keys, and of the values.
        gated: Whether the feed-forward part has a second layer of the inner width, which gates the first.
        norms: Norms before parts; one if both parts read the same.
        biases: Biases of the attention's layers and of the feed-forward part's.
    """

    times: int
    hidden: int
    keys: int
    gated: bool
    norms: int
    biases: tuple[str, bool]


@lru_cache(maxsize=4096)
def solve(count: int, width: int, norm: int) -> DecoderForm | None:
    """Return the form of layers of this many parameters; None if no usual one fits.

    Args:
        count: Parameters of the row.
        width: Width of the tokens.
        norm: Parameters of a norm.
    """
    found: list[tuple[float, DecoderForm]] = []
    keys_of = dict.fromkeys([*(width // each for each in _SHARED if not width % each), *_HEADS])
    gated = norm == width
    stacks = [times for times in range(1, _MOST_LAYERS + 1) if not count % times]
    forms = _WITHOUT_BIAS if gated else _WITH_BIAS
    for keys, (norms, biases, bias) in itertools.product(keys_of, forms):
        attention = 2 * width * width + 2 * width * keys
        attention += {"all": 2 * width + 2 * keys, "inner": width + 2 * keys, "none": 0}[biases]
        fixed = attention + norms * norm + bias * width
        matrices = 3 if gated else 2
        each = matrices * width + bias * (matrices - 1)  # per channel of the inner width
        for times in stacks:
            hidden, rest = divmod(count // times - fixed, each)
            if rest or hidden % _MULTIPLE or not width <= hidden <= _WIDEST * width:
                continue
            if gated or hidden == _UNGATED * width:  # else too many forms fit
                form = DecoderForm(times, hidden, keys, gated, norms, (biases, bias))
                found.append((abs(math.log(hidden / (_GATED * width))), form))
    return min(found)[1] if found else None
