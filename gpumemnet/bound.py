"""The booked bound: a conformal upper limit whose width follows from how uncertain such jobs are.

Conformalised quantile regression (Romano, Patterson, Candes, NeurIPS 2019). An ensemble learns a high quantile of the
correction's error, the width. On families that the correction had not seen, the ratio of error to width is ranked; the
bound takes the ratio that all but 1 % stay below, for each kind of job apart (Mondrian), since some texts tell more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gpumemnet.profile import ModelProfile

CONFIDENCE = 0.99
"""Share of jobs that stay below the bound."""
LEAST_WIDTH = 0.01
"""One percent: the floor below which no job's error is taken to be known."""


def kind(profile: ModelProfile) -> str:
    """Name the kind of jobs whose bound is calibrated together: by format, and by how much of the job it tells."""
    if profile.recurrents:
        told = "recurrent"  # what cuDNN keeps for them is known least
    elif profile.guessed or profile.unknown:
        told = "guessed"
    else:
        told = "shown"
    return f"{profile.source}_{told}"


def width(learned: float, constants: Mapping[str, float], profile: ModelProfile) -> float:
    """Return the bound's width, a logarithm, from what the ensemble says.

    Args:
        learned: The ensemble's answer.
        constants: Conformal ratios by "ratio_" and kind; "ratio" is for kinds that too few runs calibrate.
        profile: The job.
    """
    return max(learned, LEAST_WIDTH) * constants.get(f"ratio_{kind(profile)}", constants["ratio"])


def conformal_ratio(ratios: Sequence[float], confidence: float = CONFIDENCE) -> float:
    """Return the ratio of error to width that `confidence` of new jobs stay below.

    Args:
        ratios: (log actual - log estimate) / width of jobs that the estimate was not trained on.
        confidence: Wanted coverage.

    Returns:
        The ceil((n + 1) * confidence)-th smallest ratio, or the largest if there are too few.
    """
    rank = math.ceil((len(ratios) + 1) * confidence)
    return sorted(ratios)[min(rank, len(ratios)) - 1]
