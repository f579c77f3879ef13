"""What widens a trace's bound, by kind of doubt, in one table; `--explain` shows the sentences of those that applied.

cuDNN's benchmark flag has quantiles of its own (`result.py: BENCHMARK_FACTORS`). Left out is what takes less than is
counted: a compiled step (18 to 20 % less, docs/measurements/2026-11-scripts.md), and a selection by mask, where every
element counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gpumemnet.records import frozen
from gpumemnet.units import to_mib_nearest

UNREAD_TIMES = 10.0
"""Batches not seen per batch seen, where a script or a stream does not tell how many follow. Assumed."""
MOST_GROWTH = 1.0
"""Largest further growth of the inputs that the bound covers: twice the largest that was counted. Assumed."""
_NOTE = "the bound is {} MiB higher for {}"


@frozen
class UncertaintyKind:
    """One kind of doubt.

    Attributes:
        share: Share of the reserved memory by which the bound rises.
        words: Words that follow "the bound is N MiB higher for".
        source: The measurement behind the share, or that it is assumed.
    """

    share: float
    words: str
    source: str


KINDS = {
    "branches": UncertaintyKind(
        share=0.09,
        words="branches whose side was guessed",
        source="assumed: as wide as the widest measured kind, cuDNN's benchmark flag (-8 to +9 %, 30 settings, H100)",
    ),
    "loops": UncertaintyKind(
        share=0.09,
        words="loops whose number of rounds was guessed",
        source="assumed: as for branches",
    ),
    "compiled": UncertaintyKind(
        share=0.09,
        words="the memory pools and trials of torch.compile's mode",
        source="assumed: as for branches",
    ),
    "allocator": UncertaintyKind(
        share=0.09,
        words="settings of PyTorch's allocator",
        source="max_split_size_mb -3 to +9 %, roundup_power2_divisions -3 to +3 %: five networks, H100",
    ),
    "emptied": UncertaintyKind(
        share=0.07,
        words="a cache that is emptied while it trains",
        source="-7 to +7 %: five networks, after each step, H100",
    ),
    "no TF32": UncertaintyKind(
        share=0.42,
        words="convolutions without TF32, for which cuDNN may choose others of its algorithms",
        source="-8 and +42 %: two networks of convolutions in fp32, H100",
    ),
}
LENGTHS = "inputs of changing size"
STREAMS = "CUDA streams that each epoch makes again: PyTorch keeps the memory of 32"


def growth(sizes: Sequence[int], unread_times: float) -> float:
    """Return the share by which a size that was not seen may exceed the largest that was.

    With exponential tails the largest of n sizes lies ln n scales above the common ones, and that of `unread_times`
    as many a further ln(1 + unread_times).

    Args:
        sizes: Elements of each batch or step that was seen.
        unread_times: Number of those not seen, divided by the number seen; 0 if all were seen.
    """
    largest = max(sizes, default=0)
    if len(sizes) < 2 or not largest or unread_times <= 0:
        return 0.0
    # Few steps say nothing of what is common: then the smallest counts.
    common = sorted(sizes)[len(sizes) // 2] if len(sizes) >= _MANY else min(sizes)
    scales = (largest - common) / largest / math.log(len(sizes))
    return min(scales * math.log1p(unread_times), MOST_GROWTH)


_MANY = 20
"""Sizes from which on their median says what is common."""


def widened(
    kinds: Iterable[str],
    *,
    reserved_bytes: int,
    growing_bytes: int,
    growing: float,
    streams_bytes: int = 0,
) -> tuple[int, tuple[str, ...]]:
    """Return the bytes by which the bound rises, and one sentence for each kind that applies.

    Args:
        kinds: Names in KINDS.
        reserved_bytes: The allocator's peak.
        growing_bytes: Of these, what grows with the inputs.
        growing: As from `growth`.
        streams_bytes: What further streams may hold.
    """
    parts = [
        (KINDS[name].words, int(KINDS[name].share * reserved_bytes)) for name in KINDS if name in set(kinds)
    ]
    if growing:
        parts.append((LENGTHS, int(growing * growing_bytes)))
    if streams_bytes:
        parts.append((STREAMS, streams_bytes))
    notes = tuple(_NOTE.format(to_mib_nearest(extra), words) for words, extra in parts)
    return sum(extra for _, extra in parts), notes
