"""`rad history`: bookings and measured usage of jobs, from radd's memory, by user and model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from slurm_plugin.admin.table import as_table
from slurm_plugin.admin.users import name_of
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.files.append_log import NewLines
from slurm_plugin.core.history.models import Model, from_lines, models_path
from slurm_plugin.core.history.runs import Run, from_line, peaks_path
from slurm_plugin.core.units import to_mib_up

VERSION = 1
HEADINGS = (
    "user",
    "model",
    "batch",
    "profile",
    "runs",
    "highest MiB",
    "last MiB",
    "booked MiB",
    "SMACT",
    "last run",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The runs of one user with one model profile.

    Attributes:
        user_id: The owner.
        profile_key: Hash of model and training setup.
        model: Its description; None if radd never saw it submitted.
        runs: Number of runs.
        highest_bytes: Highest peak.
        last_bytes: Peak of the last run.
        booked_bytes: Booking of the last run; None for a dedicated GPU, or if not recorded.
        estimate_bytes: The estimate before the last run, or None.
        mean_smact: Mean SM activity of the last run, or None.
        first_s: When the first run ended, seconds since the epoch; None if not recorded.
        last_s: When the last run ended.
    """

    user_id: int
    profile_key: str
    model: Model | None = None
    runs: int
    highest_bytes: int
    last_bytes: int
    booked_bytes: int | None = None
    estimate_bytes: int | None = None
    mean_smact: float | None = None
    first_s: float | None = None
    last_s: float | None = None


def runs_in(state: Path) -> list[Run]:
    """Return every remembered run, in the order in which they were reported.

    Args:
        state: paths.state of the controller, or of a node that shares no folder with it.

    Raises:
        ConfigError: Nothing can be read there.
    """
    path = peaks_path(state)
    try:
        path.stat()
        lines = NewLines(path).read()
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}; run this on the controller, as root") from exc
    return [run for run in map(from_line, lines) if run is not None]


def models_in(state: Path) -> dict[tuple[int, str], Model]:
    """Return what is known of models by user and profile key; empty if nothing can be read."""
    try:
        return from_lines(NewLines(models_path(state)).read())
    except OSError:
        return {}


def peaks(state: Path, *, user_id: int | None = None) -> list[Peak]:
    """Return the remembered peaks, most recent last.

    Args:
        state: paths.state of the controller.
        user_id: Only this user's.

    Raises:
        ConfigError: Nothing can be read there.
    """
    return summed(runs_in(state), models_in(state), user_id=user_id)


def summed(
    runs: Sequence[Run], models: Mapping[tuple[int, str], Model], *, user_id: int | None = None
) -> list[Peak]:
    """Return runs summarized by user and model.

    Args:
        runs: In the order in which they ended.
        models: What is known of models.
        user_id: Only this user's.
    """
    found: dict[tuple[int, str], Peak] = {}
    for run in runs:
        user, key, peak_bytes = run.user_id, run.profile_key, run.peak_bytes
        if key is None or peak_bytes is None or user_id not in (None, user):
            continue
        before = found.pop((user, key), None)
        now = Peak(
            user_id=user,
            profile_key=key,
            model=models.get((user, key)),
            runs=1,
            highest_bytes=peak_bytes,
            last_bytes=peak_bytes,
            booked_bytes=run.booked_bytes,
            estimate_bytes=run.estimate_bytes,
            mean_smact=run.mean_smact,
            first_s=run.time_s,
            last_s=run.time_s,
        )
        if before is not None:
            highest = max(peak_bytes, before.highest_bytes)
            first_s = run.time_s if before.first_s is None else before.first_s
            now = replace(now, runs=before.runs + 1, highest_bytes=highest, first_s=first_s)
        found[user, key] = now
    return list(found.values())


def as_text(rows: Sequence[Peak]) -> str:
    """Return a table."""
    cells = [
        (
            name_of(row.user_id),
            row.model.name if row.model else "-",
            str(row.model.batch_size) if row.model else "-",
            row.profile_key,
            str(row.runs),
            str(to_mib_up(row.highest_bytes)),
            str(to_mib_up(row.last_bytes)),
            "-" if row.booked_bytes is None else str(to_mib_up(row.booked_bytes)),
            "-" if row.mean_smact is None else f"{row.mean_smact:.2f}",
            "-" if row.last_s is None else datetime.fromtimestamp(row.last_s).strftime("%Y-%m-%d %H:%M"),
        )
        for row in rows
    ]
    return as_table(HEADINGS, cells, left=(0, 1, 3))


def as_json(rows: Sequence[Peak]) -> str:
    """Return all fields as JSON; dates in ISO 8601 with their offset from UTC."""
    entries = [
        {
            **dataclasses.asdict(row),
            "user": name_of(row.user_id),
            "first": _date(row.first_s),
            "last": _date(row.last_s),
        }
        for row in rows
    ]
    return json.dumps({"version": VERSION, "models": entries}, indent=1)


def _date(time_s: float | None) -> str | None:
    return (
        None if time_s is None else datetime.fromtimestamp(time_s).astimezone().isoformat(timespec="seconds")
    )
