"""`rad learn`: how this site's runs would change the estimates, and the number of runs behind each change."""

from __future__ import annotations

import json
import math
from pathlib import Path

from slurm_plugin.admin.table import as_table
from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.history.site_quantiles import LEAST_MODELS, LEAST_USERS
from slurm_plugin.core.history.site_quantiles_file import Learned, to_text
from slurm_plugin.radd.learn import learn

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


def learned_of(config: Config, *, now_s: float) -> Learned:
    """Return what was learned from this site's runs.

    Args:
        config: rad.toml.
        now_s: Seconds since the epoch.

    Raises:
        ConfigError: The runs cannot be read.
    """
    try:
        return learn(config, now_s=now_s)
    except OSError as exc:
        path = exc.filename or Path(config.paths.state)
        raise ConfigError(f"{path}: {exc.strerror}; run this on the controller, as root") from exc


def as_text(learned: Learned, config: Config) -> str:
    """Return a table with the range of each group's quantiles, and whether they are used.

    Args:
        learned: What was learned from this site's runs.
        config: rad.toml.
    """
    used = "radd uses it" if config.learns else "not used: set learn = true in [features] of rad.toml"
    if not learned.groups:
        return NOTHING
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
    return "\n".join((as_table(HEADINGS, rows, left=(0,)), "", _WHAT, used))


def as_json(learned: Learned) -> str:
    """Return the result as stored in the file, as JSON."""
    return json.dumps(json.loads(to_text(learned)), indent=1)


def _between(lowest: float, highest: float) -> str:
    most = "-" if highest == math.inf else f"{highest:.2f}"
    return f"{lowest:.2f} to {most}"
