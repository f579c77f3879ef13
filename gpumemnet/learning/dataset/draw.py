"""Random draws that depend only on (seed, index), on every Python version."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gpumemnet.units import GIB

T = TypeVar("T")

LOWEST_TARGET_BYTES = 0.15 * GIB
HIGHEST_TARGET_BYTES = 110 * GIB
SMALL_JOBS_EXPONENTS = (2.2, 1.5)
"""By variant. Above 1: small needs are more frequent than large ones, as in clusters; 1: log-uniform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Drawn architecture of a family and its size per sample.

    Attributes:
        arch: Arguments of the family's builder.
        elements_per_sample: Rough number of activation elements kept for backward per sample.
        params: Rough number of parameters.
        batch_range: Smallest and largest sensible batch size of the family.
        seq_len: Tokens per sample, or None.
        checkpointable: Whether the model has repeated blocks to recompute.
    """

    arch: dict[str, Any]
    elements_per_sample: float
    params: float = 0.0
    batch_range: tuple[int, int] = (1, 1024)
    seq_len: int | None = None
    checkpointable: bool = False


class Draw:
    """A source of random choices; it only uses random.random(), the one method whose values Python guarantees."""

    def __init__(self, seed: int, index: int) -> None:
        self._random = random.Random(f"gpumemnet/{seed}/{index}")

    def unit(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.unit() < probability

    def choice(self, options: Sequence[T]) -> T:
        """Return one of the options, all equally likely."""
        return options[int(self.unit() * len(options))]

    def weighted(self, options: Sequence[tuple[T, float]]) -> T:
        """Return one option, with probability proportional to its weight."""
        rest = self.unit() * sum(weight for _, weight in options)
        for option, weight in options:
            rest -= weight
            if rest < 0:
                return option
        return options[-1][0]

    def integer(self, low: int, high: int) -> int:
        """Return an integer in [low, high], uniformly.

        Args:
            low: Least.
            high: Largest.
        """
        return low + int(self.unit() * (high - low + 1))

    def log_integer(self, low: int, high: int, multiple: int = 1) -> int:
        """Return an integer in about [low, high], log-uniformly, as a multiple of `multiple`.

        Args:
            low: Least.
            high: Largest.
            multiple: Divisor of the result.
        """
        value: float = low * (high / low) ** self.unit()
        return max(multiple, round(value / multiple) * multiple)

    def batch_size(
        self, bytes_per_sample: float, fixed_bytes: float, limits: tuple[int, int], variant: int = 0
    ) -> int:
        """Return a batch size such that needs range from small jobs to nearly the whole GPU.

        Args:
            bytes_per_sample: Rough activation bytes per sample.
            fixed_bytes: Rough bytes of weights, gradients and optimizer states.
            limits: Smallest and largest batch size allowed.
            variant: Selects the distribution of needs, see SMALL_JOBS_EXPONENTS.
        """
        span = HIGHEST_TARGET_BYTES / LOWEST_TARGET_BYTES
        target = LOWEST_TARGET_BYTES * span ** (self.unit() ** SMALL_JOBS_EXPONENTS[variant])
        low, high = limits
        wanted = min(high, max(low, (target - fixed_bytes) / max(bytes_per_sample, 1.0)))
        if self.chance(0.6):
            # Most users choose powers of two.
            power: int = 2 ** max(0, int(wanted).bit_length() - 1)
            return max(low, power)
        return max(low, int(wanted))
