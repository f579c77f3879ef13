"""What does a radd that is away for 18 s cost the jobs that are submitted meanwhile?

    python bench/radd_away.py [--jobs 40] [--without-fallback] [--untyped]

On a private Slurm with four simulated GPUs: every second one job, three in four share a GPU and one wants a GPU of its
own, each for 8 s; without radd, which makes shards of them, they are more than the GPUs can run one after another.
radd is stopped after a third of them, for 18 s. The same load runs once with radd there all the time.
`--without-fallback` takes the shim's fallback away, as releases before it had none; `--untyped` leaves Type= out of
gres.conf, so that Slurm before 23.11.5 gives GPUs away whose shards are in use. Needs root and Slurm.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # lab is no part of the installed package

from lab.cluster import Cluster
from lab.load import Fate, Job, Load, equal_nodes
from lab.place import ClusterSpec, Place, home_of
from lab.sentinel import ALONE
from slurm_plugin.slurm.commands import SlurmCommands

AWAY_S = 18.0
RUNS_S = 8.0
PATIENCE_S = 200.0


def jobs_of(count: int) -> tuple[Job, ...]:
    """Return so many jobs; one in four has a GPU of its own."""
    names = (f"{ALONE if number % 4 == 3 else 'share'}-{number}" for number in range(count))
    return tuple(Job(name=name, mib=7168, seconds=RUNS_S) for name in names)


def stop_for_a_while(cluster: Cluster, *, fallback: bool) -> None:
    """Take radd away, and with it what it left for the shim unless that is to stay."""
    cluster.daemons.stop("radd")
    if not fallback:
        (cluster.place.run / "radd" / "fallback.json").unlink()
    cluster.clock.sleep(AWAY_S)
    cluster.start_radd()  # the shim finds it when its pause is over


def row_of(name: str, fates: dict[str, Fate]) -> str:
    """Return the line about one load."""
    delays = [fate.delay_s for fate in fates.values() if fate.delay_s is not None]
    done = sum(fate.done for fate in fates.values())
    put_backs = sum(fate.restarts for fate in fates.values())
    return (
        f"{name:<10} {done:>4} {statistics.median(delays):9.1f} {max(delays):10.1f} {put_backs:10}"
        if delays
        else f"{name:<10} no job started"
    )


def main() -> None:
    """Measure and print one row for each run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--without-fallback", action="store_true")
    parser.add_argument("--untyped", action="store_true")
    options = parser.parse_args()
    home, _ = home_of(Path(__file__).resolve().parent.parent)
    cluster = Cluster(Place(root=home / "away", venv=home / "venv"))
    try:
        cluster.up(ClusterSpec(nodes=equal_nodes(1), typed=not options.untyped))
        version = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf)).version()
        print(f"Slurm {'.'.join(map(str, version))}, {options.jobs} jobs, one a second", flush=True)
        print("radd       done  median s  longest s  put-backs")
        for name, away in (("there", False), ("away 18 s", True)):
            fault = partial(stop_for_a_while, cluster, fallback=not options.without_fallback)
            load = Load(cluster, jobs_of(options.jobs), ours=True)
            fates = load.run(fault if away else lambda: None, after=options.jobs // 3, give_up_s=PATIENCE_S)
            print(row_of(name, fates), flush=True)
    finally:
        cluster.down()


if __name__ == "__main__":
    main()
