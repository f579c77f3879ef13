"""Check without a GPU that all jobs of a trace can be replayed: python -m replay.check TEXTS TRACE ... [options].

    PYTHONPATH=bench:. python -m replay.workloads TEXTS $(cut -d, -f3 TRACE.csv | sort -u)    # where torch is
    PYTHONPATH=bench:. .rad/venv/bin/python -m replay.check TEXTS TRACE.csv ... --gpus 2 --compress 60

For each workload: what trains in its place, whether that was measured, whether its model's text is there, what RAD
books from it and what the trace says. For each trace: how long whole GPUs need at least. Exit status 1 if anything is
missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay.plan import Planned, plan
from replay.workloads import measured_mib, model_file, planned_name
from slurm_plugin.core.errors import EstimateError
from slurm_plugin.core.records.submission import UserDirectives
from slurm_plugin.core.units import from_mib, to_mib_up
from slurm_plugin.directives import directives_of, profile_of
from slurm_plugin.estimate import Estimator


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found of one workload.

    Attributes:
        name: Its name in the trace.
        jobs: How often it comes.
        trains: What trains in its place; "?" if unknown.
        books_mib: What RAD books; None where its need is not known.
        trace_mib: What the trace says.
        faults: What keeps a replay from being true to the trace.
    """

    name: str
    jobs: int
    trains: str
    books_mib: int | None
    trace_mib: int
    faults: tuple[str, ...]


def check(job: Planned, jobs: int, known: Mapping[str, Any], texts: Path, usable_mib: int) -> Checked:
    """Check one workload.

    Args:
        job: A job of it.
        jobs: How many there are.
        known: What `replay.workloads` said of each workload.
        texts: Where it left the models' texts.
        usable_mib: Usable memory of one GPU.
    """
    reported = known.get(job.workload)
    if reported is None:
        return Checked(
            name=job.workload,
            jobs=jobs,
            trains="?",
            books_mib=None,
            trace_mib=job.memory_mib,
            faults=("not described: run replay.workloads",),
        )
    faults = []
    if reported["trains"] != planned_name(job.workload):
        faults.append("another model stands in: its library is missing")
    if not job.measured:
        faults.append(f"steps never measured on {job.gpus} GPU(s)")
    books_mib = None
    if reported["text"] is None and job.gpus == 1:
        faults.append("no text, so a GPU of its own")
    elif reported["text"] is not None:
        try:
            books_mib = booked_mib(job.workload, reported["setup"], texts)
        except EstimateError as exc:
            faults += [str(exc)] if job.gpus == 1 else []  # it has GPUs of its own, whatever its text says
    seen_mib = measured_mib(job.workload)
    if seen_mib is not None and not 0.8 < job.memory_mib / seen_mib < 1.25:
        faults.append(f"takes {seen_mib} MiB on an H200: use replay.as_measured")
    if books_mib is not None and from_mib(books_mib) > from_mib(usable_mib):
        faults.append("books more than a GPU has")
    return Checked(
        name=job.workload,
        jobs=jobs,
        trains=reported["trains"],
        books_mib=books_mib,
        trace_mib=job.memory_mib,
        faults=tuple(faults),
    )


def booked_mib(workload: str, setup: str, texts: Path) -> int | None:
    """Return the bound that RAD books for a workload's text; None if it cannot tell.

    Raises:
        EstimateError: The text or the setup is unusable.
    """
    model = model_file(workload, texts)
    directives = directives_of(f"#!/bin/sh\n#RAD model={model} {setup}\n", "job.sh", "")
    found = None if directives is None else profile_of(directives, (texts,))
    estimate = None if found is None else Estimator(gpu="h200").estimate(UserDirectives(profile=found[0]))
    return None if estimate is None else to_mib_up(estimate.upper_bytes)


def main() -> int:
    """Print the tables; return the exit status."""
    parser = argparse.ArgumentParser(description="Whether traces can be replayed, without a GPU.")
    parser.add_argument(
        "texts", type=lambda at: Path(at).resolve(), help="folder that `python -m replay.workloads` wrote"
    )
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--gpu-memory-mib", type=int, default=142_000)
    parser.add_argument("--compress", type=float, default=60.0)
    options = parser.parse_args()
    done = options.texts / "workloads.json"
    known = json.loads(done.read_text()) if done.exists() else {}
    jobs: list[Planned] = []
    print(
        "| trace | jobs | on several GPUs | whole GPUs need at least | jobs under a minute |\n|---|---|---|---|---|"
    )
    for trace in options.traces:
        found = plan(trace, compress=options.compress, gpus=options.gpus)
        jobs += found
        least_s = sum(job.alone_s * job.gpus for job in found) / options.gpus
        short = sum(job.alone_s < 60 for job in found)
        wide = sum(job.gpus > 1 for job in found)
        print(f"| {trace.stem} | {len(found)} | {wide} | {least_s:.0f} s | {short} |")
    counts = Counter(job.workload for job in jobs)
    rows = [
        check(job, counts[name], known, options.texts, options.gpu_memory_mib)
        for name, job in sorted({job.workload: job for job in jobs}.items())
    ]
    print("\n| workload | jobs | trains | RAD books MiB | trace MiB | missing |\n|---|---|---|---|---|---|")
    for row in rows:
        books = "not known" if row.books_mib is None else row.books_mib
        print(
            f"| {row.name} | {row.jobs} | {row.trains} | {books} | {row.trace_mib} | {'; '.join(row.faults)} |"
        )
    bad = [row for row in rows if row.faults]
    print(f"\n{len(rows) - len(bad)} of {len(rows)} workloads ({len(jobs)} jobs) are ready.")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
