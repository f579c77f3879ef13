"""Check of `rad doctor` on site learning: the file that `site_quantiles` names must suit the estimator."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding, ok, unseen, warn
from slurm_plugin.admin.doctor.fixes import command
from slurm_plugin.estimate import Estimator

_SUBJECT = "learning"


def check_learn(facts: Facts) -> Iterator[Finding]:
    """Check that the file can be read here and was made for this release and estimator."""
    config = facts.config
    if config is None or not config.site_quantiles:
        return
    if facts.learned_for == Estimator.from_config(config).made_for:
        yield ok(_SUBJECT, f"{config.site_quantiles} is in use; rad learn shows the numbers of today")
    elif not facts.learned_for and not facts.radd_here:
        yield unseen(
            _SUBJECT, f"{config.site_quantiles} cannot be read here; rad-estimate reports what is shipped"
        )
    else:
        text = (
            f"{config.site_quantiles} has no numbers for this release and estimator; bookings are as shipped"
        )
        fix = (
            f"rad learn --json --config {facts.config_path} > {config.site_quantiles}; systemctl reload radd"
        )
        yield warn(_SUBJECT, text, command(fix))
