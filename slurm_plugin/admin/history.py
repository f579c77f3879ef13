"""`rad history`: what jobs booked and what they really used, as radd remembers it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.admin.table import as_table
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.lines import NewLines
from slurm_plugin.core.peaks import from_line, peaks_path
from slurm_plugin.core.units import to_mib_up

HEADINGS = ("user", "profile", "runs", "highest MiB", "last MiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The runs of one user with one model profile.

    Attributes:
        user_id: The owner.
        profile_key: Hash of model and training setup.
        runs: How many were seen.
        highest_bytes: Highest peak.
        last_bytes: Peak of the last run.
    """

    user_id: int
    profile_key: str
    runs: int
    highest_bytes: int
    last_bytes: int


def peaks(state: Path, *, user_id: int | None = None) -> list[Peak]:
    """Return the remembered peaks, most recent last.

    Args:
        state: paths.state of the controller.
        user_id: Show this user's alone.

    Raises:
        ConfigError: Nothing can be read there.
    """
    path = peaks_path(state)
    try:
        path.stat()
        lines = NewLines(path).read()
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}; run this on the controller, as root") from exc
    found: dict[tuple[int, str], Peak] = {}
    for run in filter(None, map(from_line, lines)):
        user, key, peak_bytes = run.user_id, run.profile_key, run.peak_bytes
        if key is None or peak_bytes is None or user_id not in (None, user):
            continue
        before = found.pop((user, key), None)
        found[user, key] = Peak(
            user_id=user,
            profile_key=key,
            runs=1 + (before.runs if before else 0),
            highest_bytes=max(peak_bytes, before.highest_bytes if before else 0),
            last_bytes=peak_bytes,
        )
    return list(found.values())


def as_text(rows: list[Peak]) -> str:
    """Return a table."""
    cells = [
        (
            str(row.user_id),
            row.profile_key,
            str(row.runs),
            str(to_mib_up(row.highest_bytes)),
            str(to_mib_up(row.last_bytes)),
        )
        for row in rows
    ]
    return as_table(HEADINGS, cells, left=(1,))
