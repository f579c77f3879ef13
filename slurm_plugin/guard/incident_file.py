"""The file that keeps a node's incidents between samples and across restarts of rad-monitor."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from slurm_plugin.core.files.atomic import replace_file
from slurm_plugin.guard.incidents import Incident, IncidentKind


def incidents_path(run: Path) -> Path:
    """Return the path of a node's incidents; `run` is paths.run."""
    return run / "monitor" / "incidents.json"


def read_incidents(run: Path) -> tuple[Incident, ...]:
    """Return the recorded incidents of this node; empty if the file is missing or unreadable."""
    try:
        rows: Any = json.loads(incidents_path(run).read_bytes())
        return tuple(Incident(**{**row, "victims": tuple(row["victims"])}) for row in rows if _known(row))
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _known(row: Any) -> bool:
    return row["kind"] in get_args(IncidentKind)


def write_incidents(run: Path, incidents: Iterable[Incident]) -> None:
    """Replace the record.

    Args:
        run: Folder of the node's state (`paths.run`).
        incidents: All recorded incidents.

    Raises:
        OSError: It cannot be written.
    """
    path = incidents_path(run)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    replace_file(path, json.dumps([asdict(one) for one in incidents]).encode(), mode=0o600)
