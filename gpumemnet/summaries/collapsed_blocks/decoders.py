"""Layers of language models since GPT-J: fewer norms or biases, shared keys, a feed-forward part with a gate.

Which of these a layer has follows from its parameters, where few of the usual forms add up to their exact number.
Shazeer, GLU Variants Improve Transformer, 2020; Ainslie et al., GQA, 2023; Touvron et al., LLaMA, 2023.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

_MOST_LAYERS = 100
"""Of a stack that one row stands for."""
_MULTIPLE = 64
"""Inner widths are multiples of it."""
_SHARED = (1, 2, 3, 4, 7, 8, 16)
"""Queries that share a key and a value."""
_HEADS = (64, 128)
"""Channels of a head: of keys and values where all queries share one."""
_GATED, _UNGATED, _WIDEST = 8 / 3, 4, 8
"""Times the width that a feed-forward part usually has, that it has without a gate, and that it has at most."""
_WITHOUT_BIAS = tuple((2, biases, False) for biases in ("none", "inner"))
_WITH_BIAS = tuple(itertools.product((2, 1), ("all", "inner", "none"), (True, False)))
"""Norms, and the biases of attention and of the feed-forward part: of layers whose norms have no bias (RMSNorm), which
gate their feed-forward part, and of others."""


class Form(NamedTuple):
    """What one layer holds.

    Attributes:
        times: Layers that the row stands for.
        hidden: Inner width of the feed-forward part.
        keys: Width of the keys, and of the values.
        gated: The feed-forward part has a second layer of the inner width, which gates the first.
        norms: Norms in front of parts; one where both parts read the same.
        biases: Of the attention's layers and of the feed-forward part's.
    """

    times: int
    hidden: int
    keys: int
    gated: bool
    norms: int
    biases: tuple[str, bool]


@lru_cache(maxsize=4096)
def solve(count: int, width: int, norm: int) -> Form | None:
    """Return what layers of so many parameters hold; None if nothing usual adds up to it.

    Args:
        count: Parameters of the row.
        width: Of the tokens.
        norm: Parameters of a norm.
    """
    found: list[tuple[float, Form]] = []
    keys_of = dict.fromkeys([*(width // each for each in _SHARED if not width % each), *_HEADS])
    gated = norm == width
    stacks = [times for times in range(1, _MOST_LAYERS + 1) if not count % times]
    forms = _WITHOUT_BIAS if gated else _WITH_BIAS
    for keys, (norms, biases, bias) in itertools.product(keys_of, forms):
        attention = 2 * width * width + 2 * width * keys
        attention += {"all": 2 * width + 2 * keys, "inner": width + 2 * keys, "none": 0}[biases]
        fixed = attention + norms * norm + bias * width
        matrices = 3 if gated else 2
        each = matrices * width + bias * (matrices - 1)  # for each channel of the inner width
        for times in stacks:
            hidden, rest = divmod(count // times - fixed, each)
            if rest or hidden % _MULTIPLE or not width <= hidden <= _WIDEST * width:
                continue
            if gated or hidden == _UNGATED * width:  # else too many forms add up
                form = Form(times, hidden, keys, gated, norms, (biases, bias))
                found.append((abs(math.log(hidden / (_GATED * width))), form))
    return min(found)[1] if found else None
