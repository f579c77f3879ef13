"""What does a radd that is away for 18 s cost the jobs that are submitted meanwhile?

    python bench/radd_away.py [--jobs 40] [--without-fallback] [--untyped]

On a private Slurm with four simulated GPUs: every second one job, three in four share a GPU and one wants a GPU of its
own, each for 8 s. radd is stopped after a third of them, for 18 s. The same load runs once with radd there all the
time. `--without-fallback` takes the shim's fallback away, as releases before it had none; `--untyped` leaves Type= out
of gres.conf, so that Slurm before 23.11.5 gives GPUs away whose shards are in use. Needs root and Slurm.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # lab is no part of the installed package

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, Place, home_of
from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.slurm.commands import SlurmCommands

AWAY_S = 18.0
EVERY_S = 1.0
RUNS_S = 8.0
PATIENCE_S = 400.0
SHARED = ("--gpus=1", "--comment=rad:memory=8G")
ALONE = ("--gres=gpu:1",)


def load(jobs: Jobs, count: int, *, away: bool, fallback: bool, clock: Clock) -> tuple[list[float], int]:
    """Return the delay of each job from submission to the start of its last run, and how often jobs were put back."""
    cluster = jobs.cluster
    left = cluster.place.run / "radd.fallback.json"
    submitted: dict[int, float] = {}
    begin_s = clock.monotonic_s()
    gone_s = count / 3 * EVERY_S
    is_away = False
    for number in range(count):
        clock.sleep(max(0.0, begin_s + number * EVERY_S - clock.monotonic_s()))
        passed_s = clock.monotonic_s() - begin_s
        if away and not is_away and gone_s <= passed_s < gone_s + AWAY_S:
            cluster.daemons.stop("radd")
            is_away = True
            if not fallback:
                left.unlink(missing_ok=True)
        if is_away and passed_s >= gone_s + AWAY_S:
            cluster.start_radd()  # and the shim finds it when its pause is over
            is_away = False
        wants = ALONE if number % 4 == 3 else SHARED
        job = jobs.submit(*wants, "--wrap", f"python3 fake_train.py --memory 1G --seconds {RUNS_S}")
        assert job.job_id is not None, job.messages
        submitted[job.job_id] = clock.now_s()
    if is_away:
        cluster.start_radd()
    control = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)
    deadline = Deadline(clock, PATIENCE_S)
    while control.jobs(states=("PENDING", "RUNNING", "COMPLETING")) and not deadline.passed():
        clock.sleep(0.5)
    views = [control.job(job_id) for job_id in submitted]
    delays = [
        max(0.0, view.start_time_s - submitted[view.job_id])
        for view in views
        if view is not None and view.start_time_s is not None
    ]
    return delays, sum(view.restarts for view in views if view is not None)


def main() -> None:
    """Measure and print one row for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--without-fallback", action="store_true")
    parser.add_argument("--untyped", action="store_true")
    options = parser.parse_args()
    checkout = Path(__file__).resolve().parent.parent
    home, _ = home_of(checkout)
    cluster = Cluster(Place(root=home / "away", venv=home / "venv"))
    try:
        cluster.up(ClusterSpec(typed=not options.untyped))
        folder = cluster.place.root / "work"
        folder.mkdir()
        folder.chmod(0o1777)
        (folder / "fake_train.py").write_text((checkout / "examples" / "fake_train.py").read_text())
        version = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf)).version()
        print(f"Slurm {'.'.join(map(str, version))}, {options.jobs} jobs, one a second")
        print("radd       median s  longest s  put-backs")
        for away in (False, True):
            delays, put_backs = load(
                Jobs(cluster, folder),
                options.jobs,
                away=away,
                fallback=not options.without_fallback,
                clock=cluster.clock,
            )
            name = "away 18 s" if away else "there"
            print(f"{name:<10} {statistics.median(delays):8.1f}  {max(delays):9.1f}  {put_backs:9}")
    finally:
        cluster.down()


if __name__ == "__main__":
    main()
