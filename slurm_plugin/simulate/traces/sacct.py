"""Read sacct's output: each record as a job of a trace, and a job's peak where it is given (sacct(1)).

A user may put any byte into a job's name. So the admin's separator is read from the header, and a record ends after
the header's number of fields: with `--parsable` and a long random separator no user can forge or hide a record.
With a `|` a record is a line; one with too many or too few fields is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from slurm_plugin.core.units import from_mib, parse_size
from slurm_plugin.simulate.traces.job import TraceJob, Unfit

UNREADABLE = "with a separator or a line end in a field"
_HARD_TO_GUESS = 8
"""Length from which a separator cannot be guessed by a user."""
SACCT_COLUMNS = ("JobID", "Submit", "Start", "End", "AllocTRES")
SACCT_FIELDS = (
    "JobID,JobName,User,Account,Partition,Submit,Start,End,TimelimitRaw,NNodes,State,AllocTRES,TRESUsageInMax,"
    "AdminComment"
)
_GPUS = re.compile(r"gres/gpu(?::[^=,]+)?=(\d+)")
_SHARDS = re.compile(r"gres/shard(?::[^=,]+)?=[1-9]")
# Written by RAD's Epilog if AccountingStoreFlags keep comments.
_NOTED_PEAK = re.compile(r"\brad: .*\bpeak_mib=([0-9]{1,9})\b")
_GPU_MEMORY = re.compile(r"gres/gpumem=([\d.]+[KMGT]?)")


def separator_of(header: str) -> str:
    """Return the separator of a header that sacct printed; "," for any other header.

    >>> separator_of("JobID|JobName|End"), separator_of("JobID<9d1f>JobName<9d1f>"), separator_of("arrival_s,gpus")
    ('|', '<9d1f>', ',')
    """
    rest = header.removeprefix("JobID")
    if rest != header:
        at = min((rest.find(name) for name in SACCT_FIELDS.split(",")[1:] if name in rest), default=0)
        if at > 0:
            return rest[:at]
    return "|" if "|" in header else ","


def rows_of(text: str, separator: str) -> Iterator[Mapping[str, str] | None]:
    """Return the records that sacct printed; None for one that cannot be separated from its neighbours.

    Args:
        text: The full output, with the header.
        separator: The separator in the header.
    """
    header = text.partition("\n")[0]
    names = header.removesuffix(separator).split(separator)
    if header.endswith(separator) and len(separator) >= _HARD_TO_GUESS:
        fields = text.split(separator)
        found = [fields[at : at + len(names)] for at in range(len(names), len(fields) - 1, len(names))]
        found = [[record[0].removeprefix("\n"), *record[1:]] for record in found]
    else:
        lines = [line for line in text.split("\n")[1:] if line]
        found = [
            (line.removesuffix(separator) if header.endswith(separator) else line).split(separator)
            for line in lines
        ]
    for record in found:
        yield dict(zip(names, record, strict=True)) if len(record) == len(names) else None


def parse_job(row: Mapping[str, str], number: int, partition: str | None) -> TraceJob:
    """Return the job of a line.

    Args:
        row: Its values, by column.
        number: Number of the line.
        partition: The partition whose jobs count; None takes all.

    Raises:
        Unfit: It is not a job that is simulated.
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
        limit_s=int(limit) * 60.0 if limit.isdecimal() else None,
        user=row.get("User") or "",
        account=row.get("Account") or "",
    )


def peak_bytes(row: Mapping[str, str]) -> int:
    """Return the GPU memory on each GPU in a job's or step's line; 0 if it has none."""
    found = [0]
    memory = _GPU_MEMORY.search(row.get("TRESUsageInMax") or "")
    if memory is not None:
        found.append(parse_size(memory.group(1), default_suffix=""))
    noted = _NOTED_PEAK.search(row.get("AdminComment") or "")
    if noted is not None:
        found.append(from_mib(int(noted.group(1))))
    return max(found)
