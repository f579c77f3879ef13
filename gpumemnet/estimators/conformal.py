"""The booked bound: a conformal upper limit whose width follows from how uncertain such jobs are.

Conformalised quantile regression (Romano, Patterson, Candes, NeurIPS 2019). An ensemble learns a high quantile of the
correction's error, the width. On families that the correction had not seen, what the error exceeds the width by is
ranked; the bound adds the margin that all but 1 % stay below, for each kind of job apart (Mondrian), since some texts
tell more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gpumemnet.hidden.scale import UNTOLD_PERCENT
from gpumemnet.names import Source
from gpumemnet.profile.record import ModelProfile

CONFIDENCE = 0.99
"""Share of jobs that stay below the bound."""
LEAST_WIDTH = 0.01
"""One percent: the floor below which no job's error is taken to be known."""


def kind(profile: ModelProfile) -> str:
    """Name the kind of jobs whose bound is calibrated together.

    Calibrated per format. Separate groups: recurrent models (what cuDNN saves is fitted), CNNs with an assumed input
    size (off by any factor), CNNs from `print(model)` (modules are not listed in running order), and texts that hide
    nearly all layers. The ensemble handles the rest: finer groups have too few runs for a 99th percentile, and made
    bounds wider.
    """
    if profile.recurrents:
        apart = "_recurrent"
    elif profile.assumed:
        apart = "_assumed"
    elif profile.hidden_factor >= UNTOLD_PERCENT:
        apart = "_untold"
    else:
        apart = "_convs" if profile.source == Source.MODULE_REPR and profile.convs else ""
    return profile.source + apart


def width(learned: float, constants: Mapping[str, float], profile: ModelProfile) -> float:
    """Return the bound's width, a logarithm, from what the ensemble says.

    Args:
        learned: The ensemble's answer.
        constants: Conformal margins by "margin_" and kind; "margin" is for kinds that too few runs calibrate.
        profile: The job.
    """
    margin = constants.get(f"margin_{kind(profile)}", constants["margin"])
    return max(max(learned, 0.0) + margin, LEAST_WIDTH)


def conformal_margin(excesses: Sequence[float], confidence: float = CONFIDENCE) -> float:
    """Return what to add to the width so that `confidence` of new jobs stay below.

    Args:
        excesses: log actual - log estimate - width of jobs that the estimate was not trained on.
        confidence: Wanted coverage.

    Returns:
        The ceil((n + 1) * confidence)-th smallest excess, or the largest if there are too few.
    """
    rank = math.ceil((len(excesses) + 1) * confidence)
    return sorted(excesses)[min(rank, len(excesses)) - 1]
