"""How often hooks give up on the node's ledger when many of them run at once on one busy node.

    python bench/ledger_contention.py --jobs 1500 --at-once 150

Each job is a process of its own that runs the real Prolog and then the real Epilog over simulated cards; Slurm is not
asked. A new job starts as soon as one ends, so that the load of the machine stays near `--at-once`. Printed are the
times of both hooks and what their logs say of jobs that were left alone, put back or not released.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import epilog.__main__  # noqa: E402
import epilog.hook  # noqa: E402 - loaded before the forks
import prolog.__main__  # noqa: E402
import prolog.hook  # noqa: E402 - loaded before the forks
from lab.bare_node import job_environment, make_bare_node  # noqa: E402
from slurm_plugin.core.booking.verification import partition_mark  # noqa: E402
from slurm_plugin.core.records.submission import Booking  # noqa: E402
from slurm_plugin.core.units import GIB  # noqa: E402

GPUS = 16
CARD_GIB = 141
GIVE_UPS = {
    "left alone": "prolog gave up, job left alone",
    "could not be reserved": "job put back because of a fault",
    "not released": "epilog gave up",
}


def main() -> int:
    """Run the jobs and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1500)
    parser.add_argument("--at-once", type=int, default=150)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rad-contention-") as name:
        folder = Path(name)
        make_bare_node(folder, gpus=GPUS, gpu_gib=CARD_GIB, partition='pin = "free"')
        started_s = time.monotonic()
        times = _run(folder, options.jobs, options.at_once)
        wall_s = time.monotonic() - started_s
        _tell(folder, times, wall_s, options.jobs, options.at_once)
    return 0


def _run(folder: Path, jobs: int, at_once: int) -> list[tuple[float, float]]:
    """Return the seconds of each job's Prolog and Epilog."""
    running: dict[int, int] = {}
    times = []
    next_job = 1
    while next_job <= jobs or running:
        while next_job <= jobs and len(running) < at_once:
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reader)
                _job(folder, next_job, writer)
            os.close(writer)
            running[child] = reader
            next_job += 1
        child, status = os.wait()
        with os.fdopen(running.pop(child), "rb") as told:
            text = told.read()
        if status or not text:
            sys.exit(f"a job's process ended with status {status}")
        times.append(tuple(json.loads(text)))
    return times


def _job(folder: Path, job_id: int, writer: int) -> None:
    status = 1
    try:
        os.environ.clear()
        booking = Booking(kind="shared", memory_bytes=GIB, shards=1, partitions=(partition_mark("gpu"),))
        os.environ.update(job_environment(job_id, booking, seats=str(job_id % GPUS)))
        sys.argv = ["hook", "--config", f"{folder}/rad.toml"]
        took = []
        for hook in (prolog.__main__.main, epilog.__main__.main):
            begin_s = time.monotonic()
            status = hook()
            took.append(time.monotonic() - begin_s)
            os.environ["SLURM_JOB_EXIT_CODE"] = "0"
        os.write(writer, json.dumps(took).encode())
    finally:
        os._exit(status)


def _tell(folder: Path, times: list[tuple[float, float]], wall_s: float, jobs: int, at_once: int) -> None:
    print(f"{jobs} jobs, {at_once} at once, {os.cpu_count()} cores: {wall_s:.1f} s")
    for name, column in (("prolog", 0), ("epilog", 1)):
        took = sorted(row[column] for row in times)
        shown = "  ".join(
            f"p{p} {took[min(len(took) - 1, len(took) * p // 100)]:.3f} s" for p in (50, 90, 99)
        )
        print(f"{name}: {shown}  longest {took[-1]:.3f} s")
    counts: Counter[str] = Counter()
    for log in (folder / "log").glob("*"):
        for line in log.read_text(errors="replace").splitlines():
            counts.update(meaning for words, meaning in GIVE_UPS.items() if words in line)
    print("; ".join(f"{counts[meaning]} times {meaning}" for meaning in GIVE_UPS.values()))


if __name__ == "__main__":
    sys.exit(main())
