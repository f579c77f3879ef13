"""Observed needs of runs: one line of JSON each in STATE/peaks.jsonl. All reads and writes of the file are here.

    {"time_s":1.5,"job":7,"restart":0,"user":1000,"partition":"gpu","outcome":"ok","estimate_bytes":3221225472,
     "booked_bytes":4294967296,"peak_bytes":2147483648,"mean_smact":0.4,"smact":0.45,"gpus":["GPU-..."],
     "processes":1,"profile":"ab12"}

Only `user` is in every line. `profile` is there if the run shows what its model needs: it ended well, and was observed.
Only root and SlurmUser may read the file, because it shows what each user ran.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpumemnet.records import frozen
from slurm_plugin.core.files.append_log import PRIVATE, append_line
from slurm_plugin.core.units import MIB

MOST_BYTES = 64 * MIB
"""Some 200,000 runs, and as many in the older file."""


@frozen
class Run:
    """One run of a job on one node; None means not known.

    Attributes:
        user_id: The job's user.
        peak_bytes: Highest GPU memory that the monitor saw.
        profile_key: Hash of model and training setup, if the run shows what these need.
        missed_key: The same for a run that needed more than it was allowed, and was cut short by that.
        job_id: Slurm's job id.
        restart: How often the job was requeued before.
        time_s: When it ended, seconds since the epoch.
        partition: Partition name.
        outcome: How it ended, as in Outcome.kind.
        estimate_bytes: The estimate before it.
        booked_bytes: Its booking; None for a whole GPU.
        cap_bytes: Its limit; None for a whole GPU.
        mean_smact: Its mean SM activity.
        p95_smact: The 95th percentile of it.
        energy_j: Its share of the GPUs' energy.
        start_s: When it was first seen on a GPU, seconds since the epoch.
        node: Where it ran.
        smact: Share of SMs that it would keep busy alone on a GPU, if the run shows it.
        gpus: UUIDs of the GPUs it was seen on.
        processes: Number that shared each of these, from its booking.
    """

    user_id: int
    peak_bytes: int | None = None
    profile_key: str | None = None
    missed_key: str | None = None
    job_id: int | None = None
    restart: int | None = None
    time_s: float | None = None
    partition: str | None = None
    outcome: str | None = None
    estimate_bytes: int | None = None
    booked_bytes: int | None = None
    cap_bytes: int | None = None
    mean_smact: float | None = None
    p95_smact: float | None = None
    energy_j: float | None = None
    start_s: float | None = None
    node: str | None = None
    smact: float | None = None
    gpus: tuple[str, ...] = ()
    processes: int | None = None


_NAMES = {"user_id": "user", "profile_key": "profile", "missed_key": "missed", "job_id": "job"}
"""Fields with a different name in the file."""

_KINDS: dict[str, type] = {
    **dict.fromkeys(
        (
            "user_id",
            "peak_bytes",
            "job_id",
            "restart",
            "estimate_bytes",
            "booked_bytes",
            "cap_bytes",
            "processes",
        ),
        int,
    ),
    **dict.fromkeys(("profile_key", "missed_key", "partition", "outcome", "node"), str),
    **dict.fromkeys(("time_s", "mean_smact", "p95_smact", "smact", "energy_j", "start_s"), float),
}

MARGIN = 1.05
"""Runs of one job differ by a few per cent: data order, fragmentation, a longer last batch."""
LEAST_MARGIN_BYTES = 256 * MIB


def bound_of(peak_bytes: int) -> int:
    """Return what the next run books after this observed peak."""
    return max(int(peak_bytes * MARGIN), peak_bytes + LEAST_MARGIN_BYTES)


def peaks_path(state: Path) -> Path:
    """Return the path of the file; `state` is paths.state."""
    return state / "peaks.jsonl"


def record(path: Path, run: Run) -> None:
    """Append a run.

    Args:
        path: The file of peaks.
        run: A run that ended well.

    Raises:
        OSError: It cannot be written.
    """
    append_line(path, to_line(run), mode=PRIVATE, most_bytes=MOST_BYTES)


def to_line(run: Run) -> bytes:
    """Return the line of a run, without its end."""
    row: dict[str, Any] = {
        _NAMES.get(name, name): getattr(run, name) for name in _KINDS if getattr(run, name) is not None
    }
    if run.gpus:
        row["gpus"] = run.gpus
    return json.dumps(row, separators=(",", ":")).encode("ascii")


def from_line(line: bytes) -> Run | None:
    """Return the run of a line; None if the line is damaged, such as half a line after a crash."""
    try:
        row = json.loads(line)
        values = {
            name: kind(row[key])
            for name, kind in _KINDS.items()
            if row.get(key := _NAMES.get(name, name)) is not None
        }
        return Run(**values, gpus=tuple(map(str, row.get("gpus") or ())))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
