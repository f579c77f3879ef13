"""Read and apply what a site learned: limits by group, as `rad learn --json` prints them, applied to one estimate.

    {"version":1,"made_for":"...","time_s":1.5,"groups":{"torchinfo@h200":{"lowest":[...],"highest":[...,null],
     "runs":157,"models":61,"users":9}}}

rad.toml names the file (`site_quantiles`). It names no user and no model: radd books by it, and `rad-estimate` agrees
with sbatch where it can read it.
A file that is missing, damaged or made for another estimator changes nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from gpumemnet.records import field, frozen, replace
from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.files.regular import opened
from slurm_plugin.core.history.site_quantiles import BOUND, QuantileLimits
from slurm_plugin.core.records.submission import MemoryEstimate
from slurm_plugin.core.units import MIB

VERSION = 1
LONGEST = MIB
"""Bytes of the file that are read; a site has some dozens of groups of 500 bytes."""
ANY_GPU = "gpu"
_SHOWN = 0.95
"""The quantile shown to users, next to the bound."""


@frozen
class LearnedQuantiles:
    """What a site learned.

    Attributes:
        made_for: The estimator and its settings that the runs were compared with.
        time_s: When it was learned, seconds since the epoch.
        groups: Limits by `group_of`.
    """

    made_for: str = ""
    time_s: float = 0.0
    groups: Mapping[str, QuantileLimits] = field(default_factory=dict)


def group_of(kind: str, gpu: str) -> str:
    """Return the name of a group of jobs that are learned from together.

    Args:
        kind: Basis of the estimate, as `MemoryEstimate.kind`.
        gpu: Type of GPU.
    """
    return f"{kind}@{gpu}"


def gpu_of(config: Config, partition: str | None) -> str:
    """Return the type of GPU of a partition; jobs of several partitions form a group only on one type.

    Args:
        config: rad.toml.
        partition: Its name, or those that a job names.
    """
    settings = config.partition(partition)
    return (settings.gpu_type if settings is not None else "") or config.gpu or ANY_GPU


def applied(estimate: MemoryEstimate, limits: QuantileLimits) -> MemoryEstimate:
    """Return an estimate with quantiles and bound moved between the limits; the estimate itself is unchanged.

    Args:
        estimate: The shipped estimate.
        limits: What the site learned about its group.
    """
    width = estimate.upper_bytes - estimate.estimate_bytes
    if width <= 0:
        return estimate

    def within(n_bytes: int, at: int) -> int:
        score = (n_bytes - estimate.estimate_bytes) / width
        wanted = max(min(score, limits.highest[at]), limits.lowest[at])
        return n_bytes if wanted == score else estimate.estimate_bytes + math.ceil(wanted * width)

    found = replace(
        estimate,
        upper_bytes=within(estimate.upper_bytes, SHARES.index(BOUND)),
        quantiles=tuple(
            (share, within(n_bytes, SHARES.index(share))) for share, n_bytes in estimate.quantiles
        ),
    )
    return replace(found, learned=_summary(estimate, found, limits))


def _summary(before: MemoryEstimate, after: MemoryEstimate, limits: QuantileLimits) -> str:
    """Return one sentence on what changed, for users."""

    def times(one: MemoryEstimate, n_bytes: int) -> str:
        return f"{n_bytes / max(one.estimate_bytes, 1):.2f}"

    old, new = dict(before.quantiles).get(_SHOWN), dict(after.quantiles).get(_SHOWN)
    points = [] if old is None or new is None else [(f"{_SHOWN * 100:g} %", new, old)]
    points.append(("the bound", after.upper_bytes, before.upper_bytes))
    changes = ", ".join(
        f"{name} = estimate x {times(after, now)} (shipped {times(before, was)})" for name, now, was in points
    )
    return f"re-calibrated by {limits.runs} runs of this site ({limits.models} models, {limits.users} users): {changes}"


def to_text(learned: LearnedQuantiles) -> str:
    """Return the file's text."""
    groups = {
        name: {
            "lowest": [round(score, 6) for score in limits.lowest],
            "highest": [None if score == math.inf else round(score, 6) for score in limits.highest],
            "runs": limits.runs,
            "models": limits.models,
            "users": limits.users,
        }
        for name, limits in sorted(learned.groups.items())
    }
    tree = {
        "version": VERSION,
        "made_for": learned.made_for,
        "time_s": round(learned.time_s, 3),
        "shares": SHARES,
        "groups": groups,
    }
    return json.dumps(tree, separators=(",", ":"))


def from_text(text: str) -> LearnedQuantiles | None:
    """Return the content of a file; None if it is damaged or of another version."""
    try:
        tree = json.loads(text)
        if tree["version"] != VERSION or tuple(tree["shares"]) != SHARES:
            return None
        return LearnedQuantiles(
            made_for=str(tree["made_for"]),
            time_s=float(tree["time_s"]),
            groups={str(name): _limits(row) for name, row in tree["groups"].items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def read_learned(path: str) -> LearnedQuantiles:
    """Return what a site learned; nothing if the file is missing, damaged or of another version.

    Args:
        path: `site_quantiles` of rad.toml; "" for no file.
    """
    try:
        with open(path, "rb", opener=opened) as file:
            text = file.read(LONGEST + 1)
    except OSError:
        return LearnedQuantiles()
    return from_text(text.decode("ascii", errors="replace")) or LearnedQuantiles()


def _limits(row: Mapping[str, Any]) -> QuantileLimits:
    """Return the limits of one group.

    Raises:
        ValueError: They do not rise, or do not match SHARES.
        TypeError: They are not numbers.
        KeyError: One is missing.
    """
    lowest = tuple(float(score) for score in row["lowest"])
    highest = tuple(math.inf if score is None else float(score) for score in row["highest"])
    for scores in (lowest, highest):
        if len(scores) != len(SHARES) or list(scores) != sorted(scores) or any(map(math.isnan, scores)):
            raise ValueError("limits must rise")
    return QuantileLimits(
        lowest=lowest,
        highest=highest,
        runs=int(row["runs"]),
        models=int(row["models"]),
        users=int(row["users"]),
    )
