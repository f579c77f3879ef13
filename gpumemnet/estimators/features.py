"""Convert a profile to the feature vector of the learned estimators."""

from __future__ import annotations

import math

from gpumemnet.profile.record import WORDS, ModelProfile
from gpumemnet.units import MIB

_REFERENCE = "reserved_bytes"
_NOT_LEARNED = ("mega_mult_adds", "benchmark", "nccl_alone")
"""Numbers of a profile that are unrelated to memory, or that only a trace knows."""
_NUMBERS = tuple(name for name in ModelProfile._fields if name not in (*WORDS, *_NOT_LEARNED))
_SIZES = tuple(name for name in _NUMBERS if name.endswith("_bytes") and name != _REFERENCE)

NAMES: tuple[str, ...] = (
    *(f"log_{name}" for name in _NUMBERS),
    *(f"share_{name}" for name in _SIZES),
    *(f"{name}={word}" for name, words in WORDS.items() for word in words),
)
"""Names of the numbers in `vector`, in order. A weights file lists the names it was trained on."""


def vector(profile: ModelProfile) -> list[float]:
    """Turn a profile into numbers.

    Returns:
        One number per name in NAMES: logarithms (sizes in MiB), sizes as shares of the replay's reserved bytes,
        and 0 or 1 for each word.
    """
    reference = max(profile.reserved_bytes, 1)
    log1p = math.log1p
    numbers = [
        log1p(getattr(profile, name) / MIB) if name.endswith("_bytes") else log1p(getattr(profile, name))
        for name in _NUMBERS
    ]
    numbers += [getattr(profile, name) / reference for name in _SIZES]
    for name, words in WORDS.items():
        value = getattr(profile, name)
        numbers += [1.0 if value == word else 0.0 for word in words]
    return numbers
