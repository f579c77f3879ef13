"""Compares two records of a cell: outcome, environment and output, but for the differences that are allowed here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SAME, ALLOWED, OTHER, FAILS, ONLY_WITH = "same", "allowed", "other", "FAILS", "only with"

Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """A difference that is no fault.

    Attributes:
        where: "env" (NAME=VALUE), "job" (a field of `scontrol show job`), "text" (a line).
        added: What may be there with RAD alone; a regular expression for the whole of it.
        reason: Why.
    """

    where: str
    added: str
    reason: str


ALLOWED_DIFFERENCES = (
    Allowed(where="env", added=r"RAD_\w+=.*", reason="what RAD tells the job"),
    Allowed(where="env", added=r"SLURM_SHARDS_ON_NODE=.*", reason="Slurm's word for shards"),
    Allowed(
        where="env", added="CUDA_DEVICE_ORDER=PCI_BUS_ID", reason="CUDA's numbers are then those of Slurm's GPUs"
    ),
    Allowed(where="text", added=r"(sbatch|salloc|srun): rad: .*", reason="what RAD tells the user at submission"),
    Allowed(where="text", added=r"rad: .*", reason="what RAD tells the user at submission"),
    Allowed(where="job", added=r"AdminComment", reason="the estimate, for accounts"),
    Allowed(where="job", added=r"Tres\w+|TRES|ReqTRES|AllocTRES|Gres", reason="a GPU may be asked for as all its shards"),
)

CHANCE_ENV = re.compile(
    r"SLURM_(JOB_?ID|ARRAY_JOB_ID|STEP_?ID|STEP_ID|TASK_PID|SRUN_COMM_(PORT|HOST)|STEP_LAUNCHER_PORT|LAUNCH_NODE_IPADDR"
    r"|NODELIST|JOB_NODELIST|STEP_NODELIST|TOPOLOGY_ADDR|JOB_START_TIME|JOB_END_TIME|CPU_BIND\w*|HET_JOB_ID\w*"
    r"|PTY_PORT|WORKING_CLUSTER|HET_JOB_NODELIST\w*|JOB_NODELIST_\w+|JOB_SLUID|SLUID|PRIO_PROCESS|CPUS_ON_NODE_X)|SLURMD_NODENAME|SRUN_DEBUG|_|SBATCH_MEM_BIND\w*"
    r"|SLURM_JOB_ID_HET_GROUP_\d|SLURM_\w+_(HET|PACK)_GROUP_\d"
)
"""Variables whose values are of the moment: ids, ports, nodes, cores, times."""

INDICES_ENV = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS")
"""Variables of which only the form counts."""

CHANCE_JOB = re.compile(
    r"JobId|ArrayJobId|HetJobId|HetJobIdSet|Priority|\w*Time|SecsPreSuspend|LastSchedEval|Scheduler|AllocNode:Sid|\w*NodeList|BatchHost"
    r"|NodeListIndices|Deadline|SLUID|UserId|GroupId"
)
CHANCE_LINE = re.compile(
    r"(srun|salloc): ([Pp]ending job allocation ID|job ID (queued and waiting for|has been allocated) resources"
    r"|Waiting for resource configuration|Nodes NODE are ready for job|Granted job allocation ID|Job allocation ID has been revoked\.)"
    r"|srun: (Job step creation temporarily disabled, retrying.*|Job ID step creation .*|Step created for .*)"
)
"""Lines that tell whether Slurm was busy."""

TIMED_JOB = ("TimeLimit", "TimeMin")
"""Fields that end like a time, and are the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that differs.

    Attributes:
        form: The form whose doing it is; "job" for the job itself, "submission" for the command.
        grave: Whether it ran without and fails with.
        text: What, without -> with.
        only_with: Whether it failed without and runs with.
    """

    form: str
    text: str
    grave: bool = False
    only_with: bool = False


def compare(without: Record, beside: Record) -> list[Difference]:
    """Return what differs in one cell and is not allowed."""
    found = list(_submission(without, beside))
    found += _jobs(without, beside)
    if not any(one.form == "submission" and (one.grave or one.only_with) for one in found):
        found += _files(without, beside)
    return found


def _submission(without: Record, beside: Record) -> Iterator[Difference]:
    before, after = without["submission"], beside["submission"]
    if before["rc"] != after["rc"]:
        told = _said(after["err"], beside)
        text = f"status {before['rc']} -> {after['rc']} ({'; '.join(told)[:200]})"
        yield Difference(
            form="submission", text=text, grave=before["rc"] == 0, only_with=after["rc"] == 0
        )
        return
    for stream in ("out", "err"):
        yield from _texts("submission", stream, (before[stream], without), (after[stream], beside))


def _jobs(without: Record, beside: Record) -> Iterator[Difference]:
    if len(without["jobs"]) != len(beside["jobs"]):
        text = f"{len(without['jobs'])} -> {len(beside['jobs'])} jobs"
        yield Difference(form="job", text=text, grave=len(without["jobs"]) > len(beside["jobs"]))
        return
    for before, after in zip(without["jobs"], beside["jobs"], strict=True):
        for name in sorted(before.keys() | after.keys()):
            if CHANCE_JOB.fullmatch(name) and name not in TIMED_JOB:
                continue
            one = _plain(before.get(name, "(none)"), without)
            other = _plain(after.get(name, "(none)"), beside)
            if name == "Comment":
                other = re.sub(r" ?\brad2:\S+$", "", other) or "(none)"
            if one == other or _is_allowed("job", name):
                continue
            grave = name == "JobState" and before[name] == "COMPLETED"
            rescued = name == "JobState" and after.get(name) == "COMPLETED"
            yield Difference(form="job", text=f"{name}: {one} -> {other}", grave=grave, only_with=rescued)


def _files(without: Record, beside: Record) -> Iterator[Difference]:
    before, after = _by_form(without), _by_form(beside)
    for form in sorted(before.keys() | after.keys()):
        one, other = before.get(form, {}), after.get(form, {})
        statuses = list(_statuses(form, one, without, other, beside))
        if statuses:  # all else follows from it
            yield from statuses
            continue
        yield from _environments(form, one, without, other, beside)
        kinds = (_texts_of(one, without), _texts_of(other, beside))
        for name in sorted(kinds[0].keys() | kinds[1].keys()):
            if name not in kinds[0] or name not in kinds[1]:
                side = "no longer there" if name in kinds[0] else "only with"
                yield Difference(form=form, text=f"file {name}: {side}")
                continue
            yield from _texts(form, name, (kinds[0][name], without), (kinds[1][name], beside))


def _by_form(record: Record) -> dict[str, dict[str, str]]:
    """Return a cell's files by the form that made them; "job" has all others."""
    forms = set(record["forms"])
    found: dict[str, dict[str, str]] = {}
    for path, text in record["files"].items():
        base = path.rpartition("/")[2]
        stem = next((form for form in sorted(forms, key=len, reverse=True) if base.startswith(f"{form}.")), "job")
        if base.startswith("direct."):
            stem = "plain"
        found.setdefault(stem, {})[path] = text
    return found


def _statuses(
    form: str, before: dict[str, str], without: Record, after: dict[str, str], beside: Record
) -> Iterator[Difference]:
    fewer = sum(_seen(after, beside).values()) < sum(_seen(before, without).values())
    for path in sorted(path for path in before.keys() | after.keys() if path.endswith(".rc")):
        one, other = before.get(path, "never ended").strip(), after.get(path, "never ended").strip()
        if one != other:
            told = _said(after.get(path.removesuffix(".rc") + ".err", ""), beside)
            text = f"status {one} -> {other} ({'; '.join(told)[:200]})"
            yield Difference(form=form, text=text, grave=one == "0" or fewer, only_with=other == "0")


def _environments(
    form: str, one: dict[str, str], without: Record, other: dict[str, str], beside: Record
) -> Iterator[Difference]:
    before, after = _seen(one, without), _seen(other, beside)
    if sum(before.values()) != sum(after.values()):
        counts = sum(before.values()), sum(after.values())
        text = f"{counts[0]} -> {counts[1]} tasks saw their environment"
        yield Difference(form=form, text=text, grave=counts[0] > counts[1])
        return
    gone, new = list((before - after).elements()), list((after - before).elements())
    told: Counter[str] = Counter()
    for left, right in zip(sorted(gone), sorted(new), strict=True):
        one_env, other_env = dict(left), dict(right)
        for name in sorted(one_env.keys() | other_env.keys()):
            value, with_value = one_env.get(name, "(unset)"), other_env.get(name, "(unset)")
            if value != with_value:
                told[f"{name}: {value} -> {with_value}"] += 1
    yield from (Difference(form=form, text=text) for text in told)


def _seen(files: dict[str, str], record: Record) -> Counter[tuple[tuple[str, str], ...]]:
    """Return the environments that tasks saw, with what counts of each value."""
    found: Counter[tuple[tuple[str, str], ...]] = Counter()
    for path, text in files.items():
        if not path.endswith(".env"):
            continue
        pairs = (line.partition("=")[::2] for line in text.split("\0") if line)
        found[tuple(sorted((name, _value(name, value, record)) for name, value in pairs if not _is_allowed("env", f"{name}={value}")))] += 1
    return found


def _value(name: str, value: str, record: Record) -> str:
    if name in INDICES_ENV:
        parts = value.split(",")
        if all(part.isdigit() for part in parts) and len(set(parts)) == len(parts):
            return f"{len(parts)} integers"
        if all(part.startswith("GPU-") for part in parts) and len(set(parts)) == len(parts):
            return f"{len(parts)} UUIDs"
        return value
    if CHANCE_ENV.fullmatch(name):
        return "of the moment"
    return _plain(value, record)


def _texts_of(files: dict[str, str], record: Record) -> dict[str, str]:
    """Return the texts among a form's files by a name without ids; notes of several tasks as one."""
    found: dict[str, list[str]] = {}
    for path, text in files.items():
        if path.endswith((".rc", ".env")):
            continue
        name = re.sub(r"\.(\d+|batch)\.\d+\.host$", ".host", _plain(path, record))
        found.setdefault(name, []).append(text)
    return {name: "\n".join(texts) for name, texts in found.items()}


def _texts(form: str, name: str, one: tuple[str, Record], other: tuple[str, Record]) -> Iterator[Difference]:
    before, after = Counter(_said(*one)), Counter(_said(*other))
    gone = list((before - after).elements())
    new = [line for line in (after - before).elements() if not _is_allowed("text", line)]
    if gone or new:
        yield Difference(form=form, text=f"{name}: {'; '.join(gone)[:200] or '(nothing)'} -> {'; '.join(new)[:200] or '(nothing)'}")


def _said(text: str, record: Record) -> list[str]:
    lines = (line for line in _plain(text, record).splitlines() if line.strip())
    return [line for line in lines if not CHANCE_LINE.fullmatch(line)]


def _plain(text: str, record: Record) -> str:
    """Return a text without what is of the moment: folders, ids, nodes, times."""
    text = text.replace(record["work"], "WORK")
    root = record["work"].rpartition("/")[0]
    text = text.replace(root, "ROOT")
    for each in sorted(_ids(record), key=len, reverse=True):
        text = re.sub(rf"(?<!\d){each}(?!\d)", "ID", text)
    text = re.sub(r"(?<![\w-])n(\[0-1\]|[01](,n1)?)(?!\w)|(?<=slurmstepd-)n[01]", "NODE", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"(?<=job )\d+|(?<=StepId=)\d+|(?<=allocation )\d+|(?<=JobId=)\d+", "ID", text)
    text = text.replace("365-00:00:00", "UNLIMITED")  # as it is shown of a job that runs
    return re.sub(r"/forms/(\S+): line (\d+): \d+", r"/forms/\1: line \2: PID", text)


def _ids(record: Record) -> set[str]:
    ids = {record["job_id"]} if record["job_id"] else set()
    return ids | {row["JobId"] for row in record["jobs"]}


def _is_allowed(where: str, name: str) -> bool:
    return any(one.where == where and re.fullmatch(one.added, name, re.DOTALL) for one in ALLOWED_DIFFERENCES)
