"""A line that `sacct --parsable2` prints, as a job of a trace, and what it tells of a job's peak (sacct(1))."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from slurm_plugin.admin.simulate.trace_job import TraceJob, Unfit
from slurm_plugin.core.units import from_mib, parse_size

SACCT_COLUMNS = ("JobID", "Submit", "Start", "End", "AllocTRES")
SACCT_FIELDS = (
    "JobID,JobName,User,Partition,Submit,Start,End,TimelimitRaw,NNodes,State,AllocTRES,TRESUsageInMax,"
    "AdminComment"
)
_GPUS = re.compile(r"gres/gpu(?::[^=,]+)?=(\d+)")
_SHARDS = re.compile(r"gres/shard(?::[^=,]+)?=[1-9]")
# Written by our Epilog, where AccountingStoreFlags keep comments.
_TOLD_PEAK = re.compile(r"\brad: .*\bpeak_mib=(\d+)")
_GPU_MEMORY = re.compile(r"gres/gpumem=([\d.]+[KMGT]?)")


def parse_job(row: Mapping[str, str], number: int, partition: str | None) -> TraceJob:
    """Return the job of a line.

    Args:
        row: What it says, by column.
        number: Number of the line.
        partition: The one whose jobs count; None takes all.

    Raises:
        Unfit: It is no job that is simulated.
        KeyError, TypeError, ValueError: The line is wrong.
    """
    if partition is not None and row.get("Partition", partition) != partition:
        raise Unfit("in another partition")
    allocated = row["AllocTRES"] or ""
    gpus = _GPUS.search(allocated)
    if gpus is None and not _SHARDS.search(allocated):
        raise Unfit("without GPUs")
    if int(row.get("NNodes") or 1) > 1:
        raise Unfit("on several nodes")
    if row["End"] in ("Unknown", "") or row["Start"] in ("Unknown", "None", ""):
        raise Unfit("not ended")
    submit, start, end = (datetime.fromisoformat(row[name]) for name in ("Submit", "Start", "End"))
    duration_s = (end - start).total_seconds()
    if duration_s <= 0:
        raise Unfit("never ran")
    limit = row.get("TimelimitRaw") or ""
    return TraceJob(
        number=number,
        submit_s=submit.timestamp(),
        workload=f"{row.get('User', '')}/{row.get('JobName', '')}",
        gpus=1 if gpus is None else int(gpus.group(1)),  # shards are of one GPU
        duration_s=duration_s,
        limit_s=int(limit) * 60.0 if limit.isdigit() else None,
    )


def peak_bytes(row: Mapping[str, str]) -> int:
    """Return the GPU memory that a line of a job or step tells, on each GPU; 0 if it tells none."""
    found = [0]
    memory = _GPU_MEMORY.search(row.get("TRESUsageInMax") or "")
    if memory is not None:
        found.append(parse_size(memory.group(1), default_suffix=""))
    told = _TOLD_PEAK.search(row.get("AdminComment") or "")
    if told is not None:
        found.append(from_mib(int(told.group(1))))
    return max(found)
