"""Fit the caching allocator's thresholds to requests that each made it request a segment from the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd

from gpumemnet.errors import SetupError


def fit(seen: Iterable[tuple[int, int]], prior: Mapping[str, int]) -> dict[str, int]:
    """Return the allocator's rules.

    Requests of up to `small` get a segment of `small_segment`, those below `large_direct` one of `large_segment`, and
    others one of their size, rounded up to `large_round`. A threshold may lie anywhere between the largest request of
    one kind and the smallest of the next: the prior is kept if it does.

    Args:
        seen: Pairs of requested bytes and bytes of the driver's segment for them, in any order.
        prior: The known rules by name, in bytes.

    Returns:
        The rules by name, in bytes.

    Raises:
        SetupError: The pairs do not show all three kinds.
    """
    pairs = sorted(set(seen))
    small_segment = pairs[0][1] if pairs else 0
    large = [pair for pair in pairs if pair[1] != small_segment]
    large_segment = large[0][1] if large else 0
    shared = [pair for pair in large if pair[1] == large_segment and pair[0] < large_segment // 2 + 1]
    direct = [pair for pair in large if pair not in shared]
    if not shared or not direct or any(segment < request for request, segment in pairs):
        raise SetupError(
            "the allocator's segments are of another form than our rules; they were left as they are"
        )
    small = max(request for request, segment in pairs if segment == small_segment)
    return {
        "small_segment": small_segment,
        "large_segment": large_segment,
        "small": _between(small, shared[0][0] - 1, prior["small"], otherwise=small),
        "large_direct": _between(
            shared[-1][0] + 1, direct[0][0], prior["large_direct"], otherwise=direct[0][0]
        ),
        "large_round": gcd(*(segment for _, segment in direct)),
    }


def _between(low: int, high: int, prior: int, *, otherwise: int) -> int:
    return prior if low <= prior <= high else otherwise
