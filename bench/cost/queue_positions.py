"""Measure the cost of restoring the queue positions of requeued jobs every ten seconds where many jobs wait.

    PYTHONPATH=. python bench/cost/queue_positions.py [--jobs 10000]      (as root, after `make setup`)

A real slurmctld has so many waiting jobs, each submitted by itself. Printed are what radd queries Slurm (`squeue`,
`sinfo`, `scontrol show config`), what slurmctld itself says that it took for these questions (`sdiag`), and what radd
computes then, for one requeued job and for more, each of which was first.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from submit_rate import submit

from lab.cluster import Cluster
from lab.place import ClusterSpec, Place, home_of
from slurm_plugin.core.records.queue_position import QueuePosition
from slurm_plugin.radd.requeued.queue_positions import Ageing, restoring_boosts
from slurm_plugin.slurm.commands import SlurmCommands

ROOT = Path(__file__).resolve().parents[2]
JOB = "--exclusive --gpus=4 -t 9 -o /dev/null --wrap 'sleep 900'"
LOOPS = 4
TIMES = 5
KEPT = (1, 10, 100)
Found = TypeVar("Found")


def main() -> None:
    """Print what each part takes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000)
    options = parser.parse_args()
    home, _ = home_of(ROOT)
    cluster = Cluster(Place(root=home / "positions", venv=home / "venv"))
    spec = ClusterSpec(with_rad=False, slurm_conf=(f"MaxJobCount={2 * options.jobs}",))
    try:
        cluster.up(spec)
        submit(cluster, JOB, options.jobs // LOOPS, LOOPS)
        _measure(cluster)
    finally:
        cluster.down()


def _measure(cluster: Cluster) -> None:
    slurm = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=60)
    before = _scheduler_cost(cluster)
    took_s, waiting = _median(slurm.standings)
    count, spent_us = (now - then for now, then in zip(_scheduler_cost(cluster), before, strict=True))
    in_slurmctld_s = spent_us / count / 1e6
    print(f"{len(waiting)} jobs wait: {took_s:.2f} s for squeue, {in_slurmctld_s:.3f} s of it in slurmctld")
    took_s, nodes = _median(slurm.nodes)
    config_s, config = _median(slurm.config)
    print(f"{took_s:.2f} s for sinfo, {config_s:.2f} s for scontrol show config")
    ageing, now_s = Ageing.from_config(config), time.time()
    first = max(job.priority for job in waiting)
    former = {
        job.job_id: QueuePosition(submitted_s=job.submitted_s, accrues_s=job.accrues_s, priority=first)
        for job in waiting
    }
    on_nodes = [node.partitions for node in nodes]
    for many in KEPT:
        positions = dict(list(former.items())[-many:])
        took_s, found = _median(
            partial(restoring_boosts, positions, waiting, {}, ageing, on_nodes, now_s=now_s)
        )
        print(f"{took_s:.3f} s to compute by how much {many} of them are raised ({len(found)})")


def _median(work: Callable[[], Found]) -> tuple[float, Found]:
    took_s = []
    for _ in range(TIMES):
        began_s = time.monotonic()
        found = work()
        took_s.append(time.monotonic() - began_s)
    return statistics.median(took_s), found


def _scheduler_cost(cluster: Cluster) -> tuple[int, int]:
    """Return how often slurmctld was queried for jobs, and how many microseconds it took over all."""
    text = cluster.slurm("sdiag")
    found = [
        (int(count), int(total))
        for count, total in re.findall(r"REQUEST_JOB_INFO\w* .*?count:(\d+) .*?total_time:(\d+)", text)
    ]
    return sum(count for count, _ in found), sum(total for _, total in found)


if __name__ == "__main__":
    main()
