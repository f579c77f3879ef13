"""Submits cells to a cluster, however it was made, and notes what became of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparison.catalogue import HERE, Cell
from comparison.scripts import argv_of, write_cell, write_forms

from lab.daemons import TIME_FACTOR

THREADS = 6
POLL_S = 2.0
SUBMISSION_S = 240.0 * TIME_FACTOR
"""An salloc or srun ends with its job."""

_FIELD = re.compile(r"(?:^| )([A-Z][A-Za-z:/]*)=(.*?)(?= [A-Z][A-Za-z:/]*=|$)")
_JOB_ID = re.compile(r"(?:Submitted batch job|allocation|job) (\d+)|^(\d+)$", re.MULTILINE)

Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running cluster.

    Attributes:
        env: The environment in which Slurm's commands reach it.
        work: A new folder for scripts and what they print; not below a folder closed to users.
        user: The submitting user.
    """

    env: Mapping[str, str]
    work: Path
    user: str


def run_cells(target: Target, cells: Iterable[Cell], *, limit_s: float) -> list[Record]:
    """Submit all cells at once, wait until their jobs have ended, and return a record of each.

    Args:
        target: The cluster.
        cells: What is submitted.
        limit_s: Jobs that have not ended by then are cancelled, and their records say in which state they were.
    """
    cells = list(cells)
    _prepare(target.work, cells)
    began = time.monotonic()
    deadline = began + limit_s
    jobs: dict[str, dict[str, str]] = {}
    with _submitter(target, cells) as process:
        while process.poll() is None:
            time.sleep(POLL_S)
            jobs |= _jobs(target)
            if time.monotonic() > deadline:
                _cancel(target)
        answers = {}
        for line in (target.work / "answers").read_text(encoding="utf-8").splitlines():
            answer = json.loads(line)
            answers[answer["name"]] = answer
    submitted = time.monotonic()
    stuck: dict[str, dict[str, str]] = {}
    while waiting := _queued(target):
        if _never(target) >= waiting or time.monotonic() > deadline:
            stuck = _jobs(target)
            _cancel(target)
            deadline = time.monotonic() + 30
        time.sleep(POLL_S)
        jobs |= _jobs(target)
    jobs |= _jobs(target)
    print(
        f"{len(cells)} submissions: {submitted - began:.0f} s, then {time.monotonic() - submitted:.0f} s",
        flush=True,
    )
    for job_id, row in stuck.items():
        if row.get("JobState") in ("PENDING", "RUNNING"):
            jobs[job_id] = row
    steps = _steps(target)
    return [_record(target.work, cell, answers.get(cell.name, {}), jobs, steps) for cell in cells]


def _prepare(work: Path, cells: list[Cell]) -> None:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    shutil.copy(HERE / "probe.sh", work)
    (work / "probe.sh").chmod(0o755)
    write_forms(work / "forms", cells)
    for cell in cells:
        write_cell(work, cell)


def _submitter(target: Target, cells: list[Cell]) -> subprocess.Popen[str]:
    """Start what submits them: batch jobs first, then those whose command lasts as long as the job."""
    orders = [
        {
            "name": cell.name,
            "argv": argv_of(target.work, cell),
            "cwd": str(target.work / "cells" / cell.name),
            "env": cell.head.env,
            "stdin": (target.work / "cells" / cell.name / "job").read_text(encoding="utf-8"),
        }
        for cell in sorted(cells, key=lambda cell: cell.entrance != "sbatch")
    ]
    listed = target.work / "orders"
    listed.write_text(json.dumps({"orders": orders, "threads": THREADS, "limit_s": SUBMISSION_S}))
    argv = ["runuser", "-u", target.user, "--", "python3", str(HERE / "submitter.py")]
    with listed.open() as stdin, (target.work / "answers").open("w") as stdout:
        return subprocess.Popen(argv, stdin=stdin, stdout=stdout, env=dict(target.env), text=True)


def _slurm(target: Target, *argv: str) -> str:
    done = subprocess.run(argv, env=dict(target.env), capture_output=True, text=True, errors="replace")
    return done.stdout


def _jobs(target: Target) -> dict[str, dict[str, str]]:
    """Return what Slurm says of every job that it still knows, by id."""
    rows = [
        {name: value.strip() for name, value in _FIELD.findall(line)}
        for line in _slurm(target, "scontrol", "-o", "show", "job").splitlines()
    ]
    return {row["JobId"]: row for row in rows if "JobId" in row}


def _queued(target: Target) -> int:
    return len(_slurm(target, "squeue", "-h", "-r", "-o", "%i").split())


def _never(target: Target) -> int:
    """Return how many jobs wait for what will not come, once nothing runs any more."""
    states = _slurm(target, "squeue", "-h", "-r", "-o", "%T").split()
    if set(states) - {"PENDING"}:
        return 0
    time.sleep(4 * POLL_S)  # Slurm looks every two seconds
    again = _slurm(target, "squeue", "-h", "-r", "-o", "%T").split()
    return len(again) if again and not set(again) - {"PENDING"} else 0


def _cancel(target: Target) -> None:
    for job_id in _slurm(target, "squeue", "-h", "-o", "%F").split():
        _slurm(target, "scancel", "--full", job_id)


def _steps(target: Target) -> list[list[str]]:
    """Return id, state and exit code of every job and step that Slurm's accounts hold; none where it keeps none."""
    time.sleep(POLL_S)  # they follow a moment later
    printed = _slurm(target, "sacct", "-a", "-n", "-P", "-D", "-S", "now-1days", "-o", "JobID,State,ExitCode")
    return [line.split("|") for line in printed.splitlines()]


def _record(
    work: Path, cell: Cell, answer: Record, jobs: dict[str, dict[str, str]], steps: list[list[str]]
) -> Record:
    folder = work / "cells" / cell.name
    files = _files(folder)
    job_id = _id_of(answer, files)
    own = [
        row
        for row in jobs.values()
        if job_id and job_id in (row["JobId"], row.get("ArrayJobId"), row.get("HetJobId"))
    ]
    own.sort(key=lambda row: (row.get("ArrayTaskId", "").zfill(6), row.get("HetJobOffset", ""), row["JobId"]))
    return {
        "cell": cell.name,
        "head": cell.head.name,
        "entrance": cell.entrance,
        "forms": [form.name for form in cell.forms],
        "submission": {key: answer.get(key) for key in ("rc", "out", "err")},
        "job_id": job_id,
        "jobs": own,
        "steps": [row for row in steps if job_id and re.match(rf"{job_id}(\D|$)", row[0])],
        "files": files,
        "work": str(work),
    }


def _id_of(answer: Record, files: dict[str, str]) -> str | None:
    """Return the job's id; of an srun that says none, as its tasks saw it."""
    for text in (answer.get("out") or "", answer.get("err") or ""):
        if match := _JOB_ID.search(text):
            return match[1] or match[2]
    for text in files.values():
        if match := re.search(r"(?:^|\0)SLURM_JOB_ID=(\d+)", text):
            return match[1]
    return None


def _files(folder: Path) -> dict[str, str]:
    """Return everything that lies in a cell's folder, by relative path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = os.fsencode(path.relative_to(folder)).decode(errors="replace")
        if path.is_file() and name not in ("job", "body") and not name.endswith(".noted"):
            found[name] = path.read_text(errors="replace")
    return found
