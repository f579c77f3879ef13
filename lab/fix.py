"""Apply the fixes of `rad doctor` exactly as printed, on a private cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.cluster import Cluster
from lab.daemons import LabError
from slurm_plugin.admin.doctor.fixes import LineChange
from slurm_plugin.core.errors import CommandError


def findings(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the findings of `rad doctor` on the controller that fail or warn, from its JSON output."""
    config = str(cluster.place.etc / "rad.toml")
    try:
        text = cluster.slurm(f"{cluster.place.venv}/bin/rad", "doctor", "--config", config, "--json")
    except CommandError as exc:
        text = exc.output
    found: list[dict[str, Any]] = json.loads(text)["findings"]
    return [each for each in found if each["level"] in ("fail", "warn")]


def fix(cluster: Cluster, finding: Mapping[str, Any]) -> None:
    """Apply the fix of one finding: its lines from the bottom up, so that line numbers stay valid.

    Args:
        cluster: The cluster; slurmctld is restarted through it.
        finding: From `findings`.

    Raises:
        LabError: It has no fix that can be applied.
        CommandError: A command fails.
    """
    actions: Sequence[Mapping[str, Any]] = finding["actions"]
    if not actions:
        raise LabError(f"no fix is given: {finding}")
    changes = [
        LineChange(path=Path(action["file"]), first=action["line"], count=action["lines"], new=action["new"])
        for action in actions
        if "file" in action
    ]
    for change in sorted(changes, key=lambda change: -change.first):
        change.path.write_text(change.applied(change.path.read_text() if change.path.exists() else ""))
    for action in actions:
        if action.get("run") == ["systemctl", "restart", "slurmctld"]:
            cluster.restart_slurmctld()
        elif "run" in action:
            cluster.slurm(*action["run"])
