"""Conformal quantiles of the estimate's error: the memory that holds each share of jobs.

Split conformal prediction, Mondrian by kind of job (Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World,
2005). The logarithm of actual over estimated memory of jobs that the correction had not seen is ranked, separately for
each kind of text, since some contain more. 99 % of new jobs of a kind stay below the value that 99 % of these stay
below. If a text shows how much of a model it hides, errors are ranked as multiples of the width expected from that
(`scale`).

An ensemble that learned a width for each job (conformalised quantile regression) was used until its width turned out
to hardly follow the error; one number per kind gives narrower bounds (docs/measurements/2026-11-calibration.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from gpumemnet.names import Family, Source
from gpumemnet.profile.record import ModelProfile
from gpumemnet.summaries.collapsed_blocks.scale import UNKNOWN_PERCENT

CONFIDENCE = 0.99
"""Share of jobs that stay below the bound."""
LEVELS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)
"""Shares of jobs with a quantile in the weights."""
LEAST_WIDTH = 0.01
"""One percent: the smallest error assumed for any job."""
_ROUNDING = 1e-9
ANY = "any"
"""Key of the quantiles for kinds with too few runs."""


def kind(profile: ModelProfile) -> str:
    """Return the kind of job, the group whose quantiles are calibrated together.

    Calibrated per format; torchinfo's texts that hide levels are separate from complete ones. Separate groups:
    recurrent models (what cuDNN saves is fitted), models of images with an assumed input size (off by any factor),
    those from `print(model)` (modules are not in running order), in both transformers separate from convolutional nets,
    and texts that hide nearly all layers. A text with layers of unknown kinds also hides their behaviour. Finer groups
    have too few runs for a 99th percentile, and made bounds wider.
    """
    tokens = "_tokens" if profile.family is Family.TRANSFORMER else ""
    if profile.recurrents:
        apart = "_recurrent"
    elif profile.assumed:
        apart = f"_assumed{tokens}"
    elif profile.hidden_factor >= UNKNOWN_PERCENT:
        apart = "_untold"
    elif profile.source == Source.MODULE_REPR:
        apart = f"_convs{tokens}" if profile.convs else ""
    else:
        apart = (
            "_hidden"
            if profile.hidden_bytes or (profile.unknown and profile.source == Source.TORCHINFO)
            else ""
        )
    return profile.source + apart


_LEAST_SCALE, _MUCH_HIDDEN = 0.5, 0.2
"""Texts whose hidden layers hold a fifth of the memory or more have equal errors; below, errors shrink with the share,
down to half of that (docs/measurements/2026-11-calibration.md)."""


def scale(profile: ModelProfile) -> float:
    """Return the width of a profile's quantiles relative to its kind's; 1 for unchanged.

    Hidden parts are guessed: a text that hides a hundredth of a model is less wrong than one that hides all. A layer of
    an unknown kind may hold anything.
    """
    if kind(profile) != f"{Source.TORCHINFO}_hidden" or profile.unknown:
        return 1.0
    return min(_LEAST_SCALE + (1 - _LEAST_SCALE) * hidden_share(profile) / _MUCH_HIDDEN, 1.0)


def hidden_share(profile: ModelProfile) -> float:
    """Return the hidden layers' bytes over the allocator's reserved bytes: a guess, sometimes above 1."""
    return profile.hidden_bytes / max(profile.reserved_bytes, 1)


def widths(table: Mapping[str, Sequence[float]], profile: ModelProfile) -> Sequence[float]:
    """Return the logarithms by which jobs exceed their estimate, one for each of LEVELS.

    Args:
        table: Quantiles by kind, and those of ANY.
        profile: The job.
    """
    own = table.get(kind(profile))
    if not own:
        return table[ANY]
    narrowed = scale(profile)
    return own if narrowed == 1.0 else [narrowed * width for width in own]


def quantiles(errors: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Return the quantile for each share in LEVELS; they rise, from at least 0, and at least LEAST_WIDTH at the bound.

    Args:
        errors: log actual - log estimate of jobs that the estimate was not trained on.
        weights: Weight of each of them; None for equal weights.
    """
    found = (
        max(conformal_margin(errors, level, weights), LEAST_WIDTH if level >= CONFIDENCE else 0.0)
        for level in LEVELS
    )
    return list(accumulate(found, max))


def conformal_margin(
    excesses: Sequence[float], confidence: float = CONFIDENCE, weights: Sequence[float] | None = None
) -> float:
    """Return the margin that `confidence` of new jobs stay below.

    Args:
        excesses: log actual - log estimate of jobs that the estimate was not trained on.
        confidence: Wanted coverage.
        weights: Weight of each of them; None for equal weights.

    Returns:
        The ceil((n + 1) * confidence)-th smallest excess, or the largest if there are too few; with weights the
        smallest that leaves no more of their sum above it than that one leaves of n.
    """
    count = len(excesses)
    if weights is None:
        rank = math.ceil((count + 1) * confidence)
        return sorted(excesses)[min(rank, count) - 1]
    ranked = sorted(zip(excesses, weights, strict=True))
    wanted = confidence * (count + 1) / count * sum(weights) * (1 - _ROUNDING)
    sums = accumulate(weight for _, weight in ranked)
    return next(
        (excess for (excess, _), below in zip(ranked, sums, strict=True) if below >= wanted), ranked[-1][0]
    )
