"""Learn from this site's runs: read peaks.jsonl and models.jsonl, write learned.json. A separate program.

    python -m slurm_plugin.radd.learn RAD_TOML

radd starts it once an hour where `features.learn` is on, so that radd itself computes nothing; `rad learn` shows it
to admins. Runs are compared with the current estimates for their profiles, so a new release, or another base, learns
again from old runs. core/history/site_quantiles.py says what is learned, and from which runs.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.last_good import config_in_force
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.files.append_log import NewLines
from slurm_plugin.core.files.atomic import replace_file
from slurm_plugin.core.history.models import Model, from_lines, models_path
from slurm_plugin.core.history.observed import is_representative
from slurm_plugin.core.history.runs import Run, from_line, peaks_path
from slurm_plugin.core.history.site_quantiles import Observation, limits_of
from slurm_plugin.core.history.site_quantiles_file import Learned, gpu_of, group_of, learned_path, to_text
from slurm_plugin.estimate import Estimator, model_in

MOST_SETUPS = 50
"""Per user in one group; the latest ones count."""
NICE = 19

Setup = tuple[int, str]
"""User and profile key."""


def learn(config: Config, *, now_s: float) -> Learned:
    """Return what the runs kept in paths.state show about the current estimates.

    Args:
        config: rad.toml.
        now_s: Seconds since the epoch.

    Raises:
        OSError: The runs or the models cannot be read.
    """
    state, estimator = Path(config.paths.state), Estimator.from_config(config)
    runs = filter(None, map(from_line, NewLines(peaks_path(state)).read()))
    models = from_lines(NewLines(models_path(state)).read())
    found = {name: limits_of(seen) for name, seen in observed(runs, models, config, estimator, now_s).items()}
    return Learned(
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


def write(config: Config, learned: Learned) -> None:
    """Write what was learned, for radd and for every user's `rad-estimate`.

    Args:
        config: rad.toml.
        learned: As `learn` returns it.

    Raises:
        OSError: It cannot be written; the previous file is kept.
    """
    replace_file(learned_path(Path(config.paths.state)), to_text(learned).encode(), mode=0o644)


def main(rad_toml: str) -> None:
    """Learn once.

    Args:
        rad_toml: Its path.
    """
    config = config_in_force(Path(rad_toml)).config
    write(config, learn(config, now_s=SystemClock().now_s()))


if __name__ == "__main__":
    os.nice(NICE)
    main(sys.argv[1])
