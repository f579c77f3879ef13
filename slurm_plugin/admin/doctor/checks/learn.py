"""Check of `rad doctor` on site learning: if enabled, the learned quantiles must exist and be fresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, ok, unseen, warn
from slurm_plugin.admin.doctor.fixes import command
from slurm_plugin.admin.doctor.slurm_state import rad_toml
from slurm_plugin.core.history.site_quantiles_file import learned_path

OLD_S = 86400.0
"""radd learns once an hour."""
_SUBJECT = "learning"


def check_learn(facts: Facts) -> Iterator[Finding]:
    """Check that learned.json is recent, comes from a stored history, and is readable where users request estimates."""
    config = facts.config
    if config is None or not config.features.learn:
        return
    path = learned_path(Path(config.paths.state))
    if not config.features.history:
        yield warn(
            _SUBJECT,
            "learn is on without history: no runs are kept",
            rad_toml(facts, "features", "history", "true"),
        )
    elif facts.learned_age_s is None and not facts.radd_here:
        yield unseen(_SUBJECT, f"{path} is not on this machine: rad-estimate uses the shipped values here")
    elif facts.learned_age_s is None:
        text = f"nothing was learned yet: there is no {path} that every user may read"
        yield warn(_SUBJECT, text, command(f"rad learn --write --config {facts.config_path}"))
    elif facts.learned_age_s > OLD_S:
        text = f"{path} is {facts.learned_age_s / OLD_S:.0f} days old; radd's log says why"
        yield warn(_SUBJECT, text, command(f"rad learn --write --config {facts.config_path}"))
    else:
        yield ok(_SUBJECT, f"{path} is fresh; rad learn shows it")
