"""Files that rad-monitor writes for others. They are replaced whole, so a reader needs no lock and no request.

    RUN/monitor/window.json      every GPU: last reading, activity averaged over the window; partitions with guard
    RUN/monitor/jobs/ID.json     usage of one job so far

A job's file is the monitor's memory of that job: it continues from there after a restart, and starts at zero once the
Epilog has removed the file (a requeued job keeps its id).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.files.atomic import replace_file
from slurm_plugin.core.records.gpu import GpuCounters, GpuProcess, GpuReading

STALE_AFTER_S = 5.0
"""A window this old means that the monitor hangs or is gone: it writes once a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUsage:
    """Usage of one job on this node so far.

    Attributes:
        job_id: Slurm's job id.
        first_s: When a process of it was first seen on a GPU, seconds since the epoch.
        last_s: When one was last seen there.
        peak_bytes: Highest GPU memory on any one GPU, all processes of the job together; None where the driver
            does not report memory per process.
        mean_smact: Its share of SM activity, mean over the samples; a GPU's activity is split over the jobs on it
            by their expected activity, as no source reports it per process. None without a source.
        p95_smact: The same, 95th percentile.
        energy_j: Its share of the GPUs' energy.
        gpus: UUIDs of the GPUs it was seen on.
        samples: Number of samples behind these figures.
        steady_samples: Samples since the peak last rose.
        own_smact: The same, over the samples that show what it would do alone: the GPU had activity to spare, and
            only jobs were on it. None where there was none.
        own_samples: How many these were.
        shared_s: How long it shared its GPU with a job of another user.
        computed_s: When it last computed anything, seconds since the epoch; None if that was not watched.
        computed_cpu_s: CPU time of its GPU processes then.
        smact_counts: How many samples fell into each of equal steps of SM activity, for the percentile.
    """

    job_id: int
    first_s: float
    last_s: float
    peak_bytes: int | None = None
    mean_smact: float | None = None
    p95_smact: float | None = None
    energy_j: float | None = None
    gpus: tuple[str, ...] = ()
    samples: int = 0
    steady_samples: int = 0
    own_smact: float | None = None
    own_samples: int = 0
    shared_s: float = 0.0
    computed_s: float | None = None
    computed_cpu_s: float = 0.0
    smact_counts: tuple[int, ...] = ()

    @property
    def idle_s(self) -> float:
        """Return how long it has used memory of a GPU since it last computed anything."""
        return 0.0 if self.computed_s is None else max(0.0, self.last_s - self.computed_s)


def window_path(run: Path) -> Path:
    """Return the path of a node's window; `run` is paths.run."""
    return run / "monitor" / "window.json"


def job_path(run: Path, job_id: int) -> Path:
    """Return the path of a job's record.

    Args:
        run: Folder of the node's state (`paths.run`).
        job_id: The job.
    """
    return run / "monitor" / "jobs" / f"{job_id}.json"


def read_window(run: Path, *, now_s: float) -> tuple[GpuReading, ...] | None:
    """Return the monitor's last reading of every GPU, smact averaged over the window.

    Args:
        run: Folder of the node's state (`paths.run`).
        now_s: Seconds since the epoch.

    Returns:
        Readings ordered by index; None if there is no monitor, or its file is broken or too old to trust.
    """
    rows = _read(window_path(run))
    if rows is None or abs(now_s - _number(rows.get("time_s"))) > STALE_AFTER_S:
        return None
    try:
        return tuple(reading_from(row) for row in rows["gpus"])
    except (KeyError, TypeError):
        return None


def guarded_now(run: Path, partitions: Collection[str], *, now_s: float) -> frozenset[str]:
    """Return those partitions whose jobs a running guard stops if they take what other jobs booked; none without one.

    The monitor acts on the rad.toml that it has read: a later change has no effect until the monitor is reloaded.

    Args:
        run: Folder of the node's state (`paths.run`).
        partitions: The partitions.
        now_s: Seconds since the epoch.
    """
    rows = _read(window_path(run))
    if rows is None or abs(now_s - _number(rows.get("time_s"))) > STALE_AFTER_S:
        return frozenset()
    guard_row = rows.get("guarded", list(partitions))  # missing from older monitors
    return frozenset(partitions).intersection(guard_row if isinstance(guard_row, list) else ())


def read_job(run: Path, job_id: int) -> JobUsage | None:
    """Return a job's usage so far; None if no process of it was seen on a GPU.

    Args:
        run: Folder of the node's state (`paths.run`).
        job_id: The job.
    """
    row = _read(job_path(run, job_id))
    if row is None:
        return None
    try:
        known = {field.name for field in dataclasses.fields(JobUsage)}
        usage = JobUsage(**{name: value for name, value in row.items() if name in known})
    except TypeError:
        return None
    return dataclasses.replace(usage, gpus=tuple(usage.gpus), smact_counts=tuple(usage.smact_counts))


def forget_job(run: Path, job_id: int) -> None:
    """Remove a job's record: the Epilog has read it, and a rerun under the same id starts at zero.

    Args:
        run: Folder of the node's state (`paths.run`).
        job_id: The job.
    """
    with contextlib.suppress(OSError):
        job_path(run, job_id).unlink(missing_ok=True)


def recorded_jobs(run: Path) -> set[int]:
    """Return the ids of all jobs with a record."""
    return {int(path.stem) for path in (run / "monitor" / "jobs").glob("*.json") if path.stem.isdigit()}


def settings_in(run: Path) -> str:
    """Return the monitor's `in_use`; "" if it is unknown.

    Args:
        run: Folder of the node's state (`paths.run`).
    """
    settings = (_read(window_path(run)) or {}).get("settings")
    return settings if isinstance(settings, str) else ""


def write_window(
    run: Path,
    readings: Iterable[GpuReading],
    *,
    now_s: float,
    guarded: Iterable[str] | None = None,
    settings: str = "",
) -> None:
    """Replace the window.

    Args:
        run: Folder of the node's state (`paths.run`).
        readings: One of each GPU, smact averaged over the window.
        now_s: Seconds since the epoch.
        guarded: Partitions whose jobs the guard stops; None leaves the field out.
        settings: The monitor's `in_use`.

    Raises:
        DeviceError: It cannot be written, e.g. because the file system is full.
    """
    rows = [dataclasses.asdict(reading) for reading in readings]
    guard_row = {} if guarded is None else {"guarded": list(guarded)}
    _replace(window_path(run), {"time_s": now_s, "gpus": rows, "settings": settings, **guard_row})


def write_job(run: Path, usage: JobUsage) -> None:
    """Replace a job's record.

    Args:
        run: Folder of the node's state (`paths.run`).
        usage: The job's usage so far.

    Raises:
        DeviceError: It cannot be written.
    """
    _replace(job_path(run, usage.job_id), dataclasses.asdict(usage))


def reading_from(row: Mapping[str, Any]) -> GpuReading:
    """Return the reading from a row made by `dataclasses.asdict`.

    Raises:
        KeyError: A part is missing.
        TypeError: A part is of the wrong kind.
    """
    processes = tuple(GpuProcess(**process) for process in row["processes"])
    return GpuReading(**{**row, "processes": processes, "counters": GpuCounters(**row["counters"])})


def _read(path: Path) -> dict[str, Any] | None:
    try:
        rows = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return rows if isinstance(rows, dict) else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("-inf")


def _replace(path: Path, rows: Mapping[str, object]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(rows).encode())
    except OSError as exc:
        raise DeviceError(f"{path}: {exc.strerror}") from exc
