"""Read a trace of jobs: the project's CSV, or sacct's output."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.units import MIB
from slurm_plugin.simulate.traces.job import JobTrace, TraceJob, Unfit
from slurm_plugin.simulate.traces.sacct import (
    SACCT_COLUMNS,
    SACCT_FIELDS,
    UNREADABLE,
    parse_job,
    peak_bytes,
    rows_of,
    separator_of,
)

MOST = 1e10
"""Upper limit of numbers in a trace: three centuries in seconds."""
LEAST_MIN = 0.00001
CSV_COLUMNS = ("arrival_s", "workload", "gpus", "duration_min")
_FIX = (
    f"name a CSV with {','.join(CSV_COLUMNS)}[,mem_mib,limit_min,user,account], or the output of: "
    f"sacct -a --parsable --delimiter=RANDOM_TEXT -o {SACCT_FIELDS}"
)


def read_trace(path: Path, partition: str | None = None) -> JobTrace:
    """Read a trace.

    Args:
        path: The file.
        partition: Drop sacct's jobs of other partitions; None takes all.

    Raises:
        ConfigError: The file cannot be read, has neither form, or has an invalid line.
    """
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}; {_FIX}") from exc
    if not text.strip():
        raise ConfigError(f"{path}: the file is empty; {_FIX}")
    if "\0" in text:
        raise ConfigError(f"{path}: not text (it contains zero bytes); {_FIX}")
    header = text.partition("\n")[0].rstrip("\r")
    separator = separator_of(header)
    wanted = CSV_COLUMNS if separator == "," else SACCT_COLUMNS
    missing = [name for name in wanted if name not in header.split(separator)]
    if missing:
        raise ConfigError(f"{path}:1: no column {missing[0]}; {_FIX}")
    if separator == ",":
        return _jobs(csv.DictReader(io.StringIO(text, newline="")), _csv_job, path)
    return _jobs(rows_of(text, separator), lambda row, number: _sacct_job(row, number, partition), path)


def _sacct_job(row: Mapping[str, str], number: int, partition: str | None) -> TraceJob:
    try:
        return parse_job(row, number, partition)
    except (KeyError, TypeError, ValueError, OverflowError):
        # A user or another version of sacct wrote it: only this line is dropped.
        raise Unfit(UNREADABLE) from None


def _jobs(
    rows: Iterable[Mapping[str, str] | None], parse: Callable[[Mapping[str, str], int], TraceJob], path: Path
) -> JobTrace:
    found: dict[str, TraceJob] = {}
    left_out: Counter[str] = Counter()
    peaks: dict[str, int] = {}
    for line, row in enumerate(_readable(rows, path), start=2):
        try:
            if row is None:
                raise Unfit(UNREADABLE)
            name, _, step = (row.get("JobID") or str(line)).partition(".")
            if not step:
                found[name] = parse(row, line)
            # Of a step only the peak is used. Steps follow their job.
            if peak := peak_bytes(row):
                peaks[name] = max(peaks.get(name, 0), peak)
        except Unfit as exc:
            left_out[str(exc)] += 1
        except (KeyError, TypeError, ValueError, OverflowError) as exc:
            raise ConfigError(f"{path}:{line}: {exc}; correct or remove the line") from exc
    if not found:
        raise ConfigError(f"{path}: no job in it; the simulation needs jobs with GPUs that have ended")
    jobs = [replace(job, memory_bytes=peaks.get(name, job.memory_bytes)) for name, job in found.items()]
    first_s = min(job.submit_s for job in jobs)
    jobs.sort(key=lambda job: (job.submit_s, job.number))
    ordered = (replace(job, number=k, submit_s=job.submit_s - first_s) for k, job in enumerate(jobs))
    return JobTrace(jobs=tuple(ordered), left_out=left_out)


def _readable(rows: Iterable[Mapping[str, str] | None], path: Path) -> Iterator[Mapping[str, str] | None]:
    try:
        yield from rows
    except csv.Error as exc:
        raise ConfigError(f"{path}: no CSV ({exc}); correct or remove the line") from exc


def _csv_job(row: Mapping[str, str], number: int) -> TraceJob:
    memory = next((v for k, v in row.items() if k and k.startswith("mem_mib") and v), None)
    limit = row.get("limit_min")
    return TraceJob(
        number=number,
        submit_s=_number(row["arrival_s"], 0.0, "arrival_s"),
        workload=row["workload"],
        gpus=int(_number(row["gpus"], 1, "gpus", whole=True)),
        duration_s=_number(row["duration_min"], LEAST_MIN, "duration_min") * 60,
        limit_s=_number(limit, LEAST_MIN, "limit_min") * 60 if limit else None,
        memory_bytes=round(_number(memory, 0.0, "mem_mib") * MIB) if memory else None,
        epochs=int(_number(row["epochs"], 1, "epochs", whole=True)) if row.get("epochs") else None,
        user=row.get("user") or "",
        account=row.get("account") or "",
    )


def _number(text: str | None, least: float, name: str, *, whole: bool = False) -> float:
    try:
        value = int(text or "") if whole else float(text or "")
    except ValueError:
        value = math.nan
    if not least <= value <= MOST:
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name} is {text or ''!r:.40}; it must be {kind} from {least:g} to {MOST:g}")
    return value
