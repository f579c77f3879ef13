"""Read what jobs came when: the project's CSV, or what `sacct --parsable2` prints."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.units import MIB, from_mib, parse_size

CSV_COLUMNS = ("arrival_s", "workload", "gpus", "duration_min")
SACCT_COLUMNS = ("JobID", "Submit", "Start", "End", "AllocTRES")
SACCT_FIELDS = (
    "JobID,JobName,User,Partition,Submit,Start,End,TimelimitRaw,NNodes,State,AllocTRES,TRESUsageInMax,"
    "AdminComment"
)
_GPUS = re.compile(r"gres/gpu(?::[^=,]+)?=(\d+)")
_SHARDS = re.compile(r"gres/shard(?::[^=,]+)?=[1-9]")
_TOLD_PEAK = re.compile(
    r"\brad: .*\bpeak_mib=(\d+)"
)  # by our Epilog, where AccountingStoreFlags keep comments
_GPU_MEMORY = re.compile(r"gres/gpumem=([\d.]+[KMGT]?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job of a trace.

    Attributes:
        number: Its place in the trace.
        submit_s: When it was submitted, from the trace's beginning.
        workload: What it trains; the same name is the same program.
        gpus: GPUs on one node.
        duration_s: How long it runs alone.
        limit_s: Its time limit; None if the trace has none.
        memory_bytes: Its peak on each GPU; None if the trace does not tell.
        epochs: Times through its data set; None if the trace does not tell.
    """

    number: int
    submit_s: float
    workload: str
    gpus: int
    duration_s: float
    limit_s: float | None = None
    memory_bytes: int | None = None
    epochs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The jobs of a file.

    Attributes:
        jobs: In order of submission.
        left_out: How many rows are not simulated, by the reason.
    """

    jobs: tuple[TraceJob, ...]
    left_out: Mapping[str, int]


def compressed(trace: Trace, factor: float) -> Trace:
    """Return a trace whose jobs come, run and are limited this many times faster, as a replay on real GPUs has them.

    What a job does to its GPU meanwhile stays as it was: its loader is not made faster than its trace had it.

    Args:
        trace: As it was recorded.
        factor: How many times faster; 1 changes nothing.
    """
    jobs = (
        replace(
            job,
            submit_s=job.submit_s / factor,
            duration_s=job.duration_s / factor,
            limit_s=None if job.limit_s is None else job.limit_s / factor,
        )
        for job in trace.jobs
    )
    return replace(trace, jobs=tuple(jobs))


class _Unfit(Exception):
    """A row that is no job for this simulation; the text says why."""


def read_trace(path: Path, partition: str | None = None) -> Trace:
    """Read a trace.

    Args:
        path: The file.
        partition: Leave out what sacct shows in another partition; None takes all.

    Raises:
        ConfigError: The file cannot be read, is of neither form, or a line of it is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}") from exc
    header = lines[0] if lines else ""
    separator, parse = ("|", _sacct_job) if "|" in header else (",", _csv_job)
    wanted = SACCT_COLUMNS if separator == "|" else CSV_COLUMNS
    missing = [name for name in wanted if name not in header.split(separator)]
    if missing:
        raise ConfigError(
            f"{path}: line 1 has no column {missing[0]}; a trace is CSV with {','.join(CSV_COLUMNS)}"
            f"[,mem_mib,limit_min], or the output of: sacct -a --parsable2 -o {SACCT_FIELDS}"
        )
    if separator == ",":
        return _jobs(csv.DictReader(lines), parse, path)
    # sacct prints names as they are: a quote in one opens nothing.
    rows = csv.DictReader(lines, delimiter=separator, quoting=csv.QUOTE_NONE)
    return _jobs(rows, lambda row, line: parse(_of(partition, row), line), path)


def _jobs(
    rows: Iterable[Mapping[str, str]], parse: Callable[[Mapping[str, str], int], TraceJob], path: Path
) -> Trace:
    found: dict[str, TraceJob] = {}
    left_out: Counter[str] = Counter()
    peaks: dict[str, int] = {}
    for line, row in enumerate(rows, start=2):
        try:
            if None in row and row.get("JobID"):
                raise _Unfit("with a | in a field")
            name = row.get("JobID") or str(line)
            if "." in name:
                # A step: of it only the peak is wanted. Steps stand behind their job.
                _note_peak(row, name.split(".")[0], peaks)
            else:
                found[name] = parse(row, line)
                _note_peak(row, name, peaks)
        except _Unfit as exc:
            left_out[str(exc)] += 1
        except (KeyError, TypeError, ValueError) as exc:
            raise ConfigError(f"{path}: line {line}: {exc}; mend or remove the line") from exc
    if not found:
        raise ConfigError(f"{path}: no job in it; the simulation needs jobs with GPUs that have ended")
    jobs = [replace(job, memory_bytes=peaks.get(name, job.memory_bytes)) for name, job in found.items()]
    first_s = min(job.submit_s for job in jobs)
    jobs.sort(key=lambda job: (job.submit_s, job.number))
    ordered = (replace(job, number=k, submit_s=job.submit_s - first_s) for k, job in enumerate(jobs))
    return Trace(jobs=tuple(ordered), left_out=left_out)


def _of(partition: str | None, row: Mapping[str, str]) -> Mapping[str, str]:
    if partition is not None and row.get("Partition", partition) != partition:
        raise _Unfit("in another partition")
    return row


def _csv_job(row: Mapping[str, str], number: int) -> TraceJob:
    memory = next((v for k, v in row.items() if k and k.startswith("mem_mib") and v), None)
    limit = row.get("limit_min")
    return TraceJob(
        number=number,
        submit_s=_least(float(row["arrival_s"]), 0.0, "arrival_s"),
        workload=row["workload"],
        gpus=int(_least(int(row["gpus"]), 1, "gpus")),
        duration_s=_least(float(row["duration_min"]) * 60, 0.001, "duration_min"),
        limit_s=float(limit) * 60 if limit else None,
        memory_bytes=round(float(memory) * MIB) if memory else None,
        epochs=int(row["epochs"]) if row.get("epochs") else None,
    )


def _least(value: float, least: float, name: str) -> float:
    if not least <= value < float("inf"):
        raise ValueError(f"{name} is {value:g}; it must be at least {least:g}")
    return value


def _sacct_job(row: Mapping[str, str], number: int) -> TraceJob:
    allocated = row["AllocTRES"] or ""
    gpus = _GPUS.search(allocated)
    if gpus is None and not _SHARDS.search(allocated):
        raise _Unfit("without GPUs")
    if int(row.get("NNodes") or 1) > 1:
        raise _Unfit("on several nodes")
    if row["End"] in ("Unknown", "") or row["Start"] in ("Unknown", "None", ""):
        raise _Unfit("not ended")
    submit, start, end = (datetime.fromisoformat(row[name]) for name in ("Submit", "Start", "End"))
    duration_s = (end - start).total_seconds()
    if duration_s <= 0:
        raise _Unfit("never ran")
    limit = row.get("TimelimitRaw") or ""
    return TraceJob(
        number=number,
        submit_s=submit.timestamp(),
        workload=f"{row.get('User', '')}/{row.get('JobName', '')}",
        gpus=1 if gpus is None else int(gpus.group(1)),  # shards are of one GPU
        duration_s=duration_s,
        limit_s=int(limit) * 60.0 if limit.isdigit() else None,
    )


def _note_peak(row: Mapping[str, str], job: str, peaks: dict[str, int]) -> None:
    memory = _GPU_MEMORY.search(row.get("TRESUsageInMax") or "")
    if memory is not None and memory.group(1) != "0":
        peaks[job] = max(peaks.get(job, 0), parse_size(memory.group(1), default_suffix=""))
    told = _TOLD_PEAK.search(row.get("AdminComment") or "")
    if told is not None:
        peaks[job] = max(peaks.get(job, 0), from_mib(int(told.group(1))))
