"""What jobs that needed more than they booked cost in replays: themselves, and their neighbours.

    PYTHONPATH=. python bench/replayed_surprises.py docs/results/replay/*.json.xz

- above: jobs that held more than they booked;
- stopped: times that the guard stopped one, because others needed what they had booked;
- out: times that a job ran out of GPU memory;
- hurt: of these, and of jobs lost through another's fault, those that held no more than they booked;
- lost: jobs that ran out of memory or were stopped, and did not end well;
- at once: trainings on a GPU in use, as NVML showed them twice a second: mean, and at most.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slurm_plugin.admin.report.runs import run_name, run_record

_ENDED = re.compile(r" job=(\d+) .*?\b(overrun|gpu-oom|victim): ")
COLUMNS = ("run", "jobs", "above", "stopped", "out", "hurt", "lost", "put back", "at once", "at most")


def main() -> None:
    """Print a row for each run."""
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for path in map(Path, sys.argv[1:]):
        print(f"| {' | '.join(row(run_name(path), run_record(path)))} |")


def row(name: str, run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the cells of one run.

    Args:
        name: What it is called.
        run: The record that bench/replay wrote.
    """
    jobs = {job["slurm_id"]: job for job in run["jobs"]}
    ends = [(int(job), kind) for job, kind in _ENDED.findall(run["logs"].get("epilog.log", ""))]
    kept = [job for job, kind in ends if kind != "overrun" and job in jobs and not above(jobs[job])]
    lost = {job for job, _ in ends if job in jobs and jobs[job]["state"] != "COMPLETED"}
    # Not from the trainings' own records: by hand under MPS each of them calls its GPU 0.
    crowd = [there for card in run["samples"]["cards"] for there in card["jobs"] if there]
    yield name
    yield str(len(jobs))
    yield str(sum(map(above, jobs.values())))
    yield str(sum(kind == "overrun" for _, kind in ends))
    yield str(sum(kind == "gpu-oom" for _, kind in ends))
    yield str(len(kept))
    yield str(len(lost))
    yield str(run["figures"]["put_backs"])
    yield f"{sum(crowd) / max(len(crowd), 1):.1f}"
    yield str(max(crowd, default=0))


def above(job: Mapping[str, Any]) -> bool:
    """Return whether a job held more than it booked; one whose peak nobody saw did not."""
    return bool(job["booked_mib"]) and (job["peak_mib"] or 0) > job["booked_mib"]


if __name__ == "__main__":
    main()
