"""`rad learn`: how this site's runs would change the estimates, and the number of runs behind each change.

It reads peaks.jsonl and models.jsonl, compares the runs with the current estimates for their profiles, and prints the
numbers for the file that `site_quantiles` of rad.toml names. core/history/site_quantiles.py says what is learned, and
from which runs.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from slurm_plugin.admin.table import as_table
from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.files.append_log import NewLines
from slurm_plugin.core.history.models import Model, from_lines, models_path
from slurm_plugin.core.history.observed import is_representative
from slurm_plugin.core.history.runs import Run, from_line, peaks_path
from slurm_plugin.core.history.site_quantiles import LEAST_MODELS, LEAST_USERS, Observation, limits_of
from slurm_plugin.core.history.site_quantiles_file import LearnedQuantiles, gpu_of, group_of, to_text
from slurm_plugin.estimate import Estimator, model_in

MOST_SETUPS = 50
"""Per user in one group; the latest ones count."""

Setup = tuple[int, str]
"""User and profile key."""

HEADINGS = ("jobs", "runs", "models", "users", "50 %", "90 %", "95 %", "99 %")
_SHOWN = tuple(SHARES.index(share) for share in (0.5, 0.9, 0.95, 0.99))
_WHAT = (
    "Between which widths above the estimate a quantile stays (1 is the shipped bound, - no limit): one that is\n"
    "shipped outside is brought there."
)
NOTHING = (
    "nothing is learned yet: a group needs "
    f"{LEAST_MODELS} models of {LEAST_USERS} users, not counting those of any one user"
)


def as_text(learned: LearnedQuantiles, config: Config) -> str:
    """Return a table with the range of each group's quantiles, and how to use them.

    Args:
        learned: What was learned from this site's runs.
        config: rad.toml.
    """
    if not learned.groups:
        return NOTHING
    file = config.site_quantiles or "FILE"
    also = "" if config.site_quantiles else f', site_quantiles = "{file}" in rad.toml'
    use = f"To book by this: rad learn --json > {file}{also}, and: systemctl reload radd"
    rows = [
        (
            name,
            str(limits.runs),
            str(limits.models),
            str(limits.users),
            *(_between(limits.lowest[at], limits.highest[at]) for at in _SHOWN),
        )
        for name, limits in sorted(learned.groups.items())
    ]
    return "\n".join((as_table(HEADINGS, rows, left=(0,)), "", _WHAT, use))


def as_json(learned: LearnedQuantiles) -> str:
    """Return the result as stored in the file, as JSON."""
    return json.dumps(json.loads(to_text(learned)), indent=1)


def _between(lowest: float, highest: float) -> str:
    most = "-" if highest == math.inf else f"{highest:.2f}"
    return f"{lowest:.2f} to {most}"


def learn(config: Config, *, now_s: float) -> LearnedQuantiles:
    """Return what the runs kept in paths.state show about the current estimates.

    Args:
        config: rad.toml.
        now_s: Seconds since the epoch.

    Raises:
        ConfigError: The runs or the models cannot be read.
    """
    state, estimator = Path(config.paths.state), Estimator.from_config(config)
    try:
        runs = filter(None, map(from_line, NewLines(peaks_path(state)).read()))
        models = from_lines(NewLines(models_path(state)).read())
    except OSError as exc:
        raise ConfigError(
            f"{exc.filename or state}: {exc.strerror}; run this on the controller, as root"
        ) from exc
    found = {name: limits_of(seen) for name, seen in observed(runs, models, config, estimator, now_s).items()}
    return LearnedQuantiles(
        made_for=estimator.made_for,
        time_s=now_s,
        groups={name: limits for name, limits in found.items() if limits is not None},
    )


def observed(
    runs: Iterable[Run], models: Mapping[Setup, Model], config: Config, estimator: Estimator, now_s: float
) -> dict[str, list[Observation]]:
    """Return the observations of each group of jobs.

    Args:
        runs: All recorded runs.
        models: Known models, by user and key.
        config: rad.toml; it gives a partition's type of GPU.
        estimator: This site's current estimator.
        now_s: Seconds since the epoch.
    """
    groups: dict[str, dict[Setup, Observation]] = defaultdict(dict)
    for run in runs:
        key, need_bytes = run.profile_key or run.missed_key, _need(run)
        model = None if key is None else models.get((run.user_id, key))
        if model is None or need_bytes is None or run.time_s is None or run.partition is None:
            continue
        estimate = estimator.of_profile(model.text)
        if estimate is None or estimate.upper_bytes <= estimate.estimate_bytes:
            continue
        if (run.processes or 1) > 1:
            continue  # usage of several jobs shows nothing about one
        now = Observation(
            user_id=run.user_id,
            model=model_in(model.text),
            profile=model.profile,
            score=(need_bytes - estimate.estimate_bytes) / (estimate.upper_bytes - estimate.estimate_bytes),
            age_s=max(0.0, now_s - run.time_s),
        )
        seen = groups[group_of(estimate.kind, gpu_of(config, run.partition))]
        before = seen.get((run.user_id, model.profile))
        if before is not None:
            now = replace(
                now,
                score=max(now.score, before.score),
                age_s=min(now.age_s, before.age_s),
                runs=before.runs + 1,
            )
        seen[run.user_id, model.profile] = now
    return {name: _latest(seen.values()) for name, seen in groups.items()}


def _need(run: Run) -> int | None:
    """Return a lower bound of a run's memory need; None if the run does not show it."""
    if run.peak_bytes is None:
        return None
    if run.missed_key is not None:
        return max(run.peak_bytes, run.cap_bytes or 0, run.booked_bytes or 0)
    return run.peak_bytes if is_representative(run) else None


def _latest(seen: Iterable[Observation]) -> list[Observation]:
    """Return each user's latest observations, so that a user with very many runs cannot delay the rest."""
    kept: dict[int, list[Observation]] = defaultdict(list)
    for each in sorted(seen, key=lambda each: each.age_s):
        if len(kept[each.user_id]) < MOST_SETUPS:
            kept[each.user_id].append(each)
    return [each for user in kept.values() for each in user]
