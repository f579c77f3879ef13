"""Measure Prolog, TaskProlog and Epilog of an ordinary job: wall time, CPU time and peak memory.

python3 bench/cost/hooks.py [--count 200]      (as root, after `make setup`)

A private Slurm is started for its configuration and its rad-monitor; then the very scripts that slurmd runs are run as
slurmd runs them, one job after another, each with a signed booking. Next to them stand the empty script and the bare
interpreter, which no hook in Python can undercut.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lab.cluster import Cluster  # noqa: E402
from lab.place import ClusterSpec, Place, home_of  # noqa: E402
from slurm_plugin.core.booking.verification import partition_mark  # noqa: E402
from slurm_plugin.core.comments.signed_comment import read_key, signed_booking  # noqa: E402
from slurm_plugin.core.records.submission import Booking  # noqa: E402
from slurm_plugin.core.units import GIB, KIB, MIB  # noqa: E402

USER_ID = 65534
FIRST_JOB = 1_000_000
WARM_UP = 10

PR_SET_CHILD_SUBREAPER = 36
"""From linux/prctl.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One run of a program: seconds, the most memory that one of its processes ever had, and page faults."""

    wall_s: float
    cpu_s: float
    rss_bytes: int
    page_faults: int


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    home, _ = home_of(ROOT)
    cluster = Cluster(Place(root=home / "hooks", venv=home / "venv"))
    try:
        cluster.up(ClusterSpec())
        costs = measured(cluster, WARM_UP + options.count)
        assert not cluster.allocations("n0"), "an Epilog left something reserved"
    finally:
        cluster.down()
    # A child begins with its parent's peak: what the empty script shows is this program's own.
    own_bytes = max(row.rss_bytes for row in costs["empty script"])
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{options.count} jobs one after another, {os.cpu_count()} cores, load average at the end {load}")
    print(
        f"{'':<18}{'wall p50 ms':>12}{'wall p95 ms':>12}{'CPU p50 ms':>12}{'peak RSS MiB':>14}{'page faults':>13}"
    )
    for name, rows in costs.items():
        kept = rows[WARM_UP:]
        wall_ms = sorted(1000 * row.wall_s for row in kept)
        cpu_ms = sorted(1000 * row.cpu_s for row in kept)
        rss_bytes = max(row.rss_bytes for row in kept)
        rss = f"{'<' if rss_bytes <= own_bytes else ''} {rss_bytes / MIB:.1f}"
        print(
            f"{name:<18}{at(wall_ms, 0.5):>12.1f}{at(wall_ms, 0.95):>12.1f}{at(cpu_ms, 0.5):>12.1f}{rss:>14}"
            f"{at(sorted(row.page_faults for row in kept), 0.5):>13}"
        )


def measured(cluster: Cluster, count: int) -> dict[str, list[Cost]]:
    """Return the costs of every program for so many jobs."""
    etc = cluster.place.etc
    python = f"{cluster.place.venv}/bin/python"
    key = read_key(etc / "key")
    booking = Booking(
        kind="shared",
        memory_bytes=4 * GIB,
        estimate_bytes=3 * GIB,
        profile_key="0" * 16,
        shards=4,
        partitions=(partition_mark("gpu"),),
    )
    costs: dict[str, list[Cost]] = {}
    for number in range(count):
        job = {
            "SLURM_CONF": str(cluster.place.slurm_conf),
            "SLURM_JOB_ID": str(FIRST_JOB + number),
            "SLURM_JOB_UID": str(USER_ID),
            "SLURM_JOB_GID": str(USER_ID),
            "SLURM_JOB_USER": "nobody",
            "SLURM_JOB_PARTITION": "gpu",
            "SLURM_JOB_GPUS": "0",
            "SLURM_JOB_COMMENT": signed_booking(booking, user_id=USER_ID, key=key),
            "SLURM_JOB_WORK_DIR": "/tmp",
            "SLURM_JOB_RESTART_COUNT": "0",
            "SLURMD_NODENAME": "n0",
            "CUDA_VISIBLE_DEVICES": "0",
        }
        runs = {
            "empty script": (["/bin/sh", "-c", "exit 0"], job, 0),
            "bare Python": ([python, "-I", "-c", "pass"], job, 0),
            "Prolog": ([str(etc / "prolog.sh")], job, 0),
            "TaskProlog": ([str(etc / "task_prolog.sh")], job, USER_ID),
            "Epilog": ([str(etc / "epilog.sh")], job | {"SLURM_JOB_EXIT_CODE": "0"}, 0),
        }
        for name, (argv, env, uid) in runs.items():
            costs.setdefault(name, []).append(cost_of(argv, env, uid=uid))
            if name == "Prolog":
                allocated = {row["job_id"] for row in cluster.allocations("n0")}
                assert FIRST_JOB + number in allocated, "the Prolog placed nothing: this measures nothing"
    return costs


def cost_of(argv: Sequence[str], env: Mapping[str, str], *, uid: int) -> Cost:
    """Run a program to its end as a user and return what it cost, with all processes that came of it.

    A process between is given those that outlive their parent (prctl(2), PR_SET_CHILD_SUBREAPER): a hook does not wait
    for the end of the child that did its work.
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            cost = _cost_here(argv, env, uid)
            os.write(writer, json.dumps(asdict(cost)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as reported:
        cost = Cost(**json.loads(reported.read()))
    os.wait()
    return cost


def _cost_here(argv: Sequence[str], env: Mapping[str, str], uid: int) -> Cost:
    start_s = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            if uid:
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            quiet = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(quiet, descriptor)
            os.execve(argv[0], list(argv), dict(env))
        finally:
            os._exit(127)
    _, status, _ = os.wait4(pid, 0)
    wall_s = time.monotonic() - start_s
    assert status == 0, f"{argv[0]} ended with status {status}"
    with suppress(ChildProcessError):
        while True:
            os.wait()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(
        wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        rss_bytes=usage.ru_maxrss * KIB,
        page_faults=usage.ru_minflt,
    )


def at(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values."""
    return ordered[int(share * (len(ordered) - 1))]


if __name__ == "__main__":
    main()
