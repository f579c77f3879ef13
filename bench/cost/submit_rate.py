"""Measure slurmctld's submissions per second without RAD, with it, and with radd dead, in turns on one cluster.

python3 bench/cost/submit_rate.py [--rounds 3] [--each 60] [--at-once 4]      (as root, after `make setup`)

Every way submits the same held jobs with sbatch; only what job_submit.lua and cli_filter.lua do differs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lab.cluster import Cluster  # noqa: E402
from lab.config import STAND_IN_LUA  # noqa: E402
from lab.place import ClusterSpec, Place, home_of  # noqa: E402

WAYS = ("without RAD", "with us", "radd dead")
SHIMS = ROOT / "slurm_plugin" / "lua"


def main() -> None:
    """Print submissions per second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--each", type=int, default=60, help="submissions of each of the loops that run at once"
    )
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--venv", type=Path, help="an environment with the package, if not the lab's")
    options = parser.parse_args()
    home, _ = home_of(ROOT)
    cluster = Cluster(Place(root=home / "rate", venv=options.venv or home / "venv"))
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    try:
        cluster.up(ClusterSpec())
        for _ in range(options.rounds):
            for way in WAYS:
                _prepare(cluster, way)
                rates[way].append(_rate(cluster, options.each, options.at_once))
    finally:
        cluster.down()
    base = statistics.median(rates[WAYS[0]])
    print(f"{'':<12}{'submissions/s (median of rounds)':>34}{'of without':>12}   rounds")
    for way in WAYS:
        median = statistics.median(rates[way])
        rounds = " ".join(f"{rate:.0f}" for rate in rates[way])
        print(f"{way:<12}{median:>34.1f}{median / base:>12.2f}   {rounds}")


def _prepare(cluster: Cluster, way: str) -> None:
    cluster.cancel_jobs()
    for name, stand_in in STAND_IN_LUA.items():
        text = stand_in if way == "without RAD" else (SHIMS / name).read_text()
        path = cluster.place.etc / name
        path.write_text(text)
        os.utime(path, (time.time(), time.time() + 2 * (WAYS.index(way) + 1)))
    if way == "radd dead":
        cluster.daemons.stop("radd")
    else:
        cluster.restart_radd()
    _rate(cluster, 2, 1)
    cluster.cancel_jobs()


def submit(cluster: Cluster, job: str, each: int, at_once: int) -> list[str]:
    """Submit a job again and again as an ordinary user, and return what each loop printed.

    Args:
        cluster: Where to.
        job: sbatch's words.
        each: Submissions of each loop.
        at_once: Loops side by side.
    """
    loop = f"cd / && for n in $(seq {each}); do sbatch -Q {job}; done"
    with ThreadPoolExecutor(at_once) as pool:
        futures = [
            pool.submit(cluster.slurm, "sh", "-c", loop, user="nobody", timeout_s=3600)
            for _ in range(at_once)
        ]
        return [future.result() for future in futures]


def _rate(cluster: Cluster, each: int, at_once: int) -> float:
    start_s = time.monotonic()
    job = "-H --gpus=1 --comment=rad:memory=4G -o /dev/null --wrap true"
    texts = submit(cluster, job, each, at_once)
    took_s = time.monotonic() - start_s
    submitted = sum(text.count("Submitted batch job") for text in texts)
    assert submitted == each * at_once or "Submitted" not in "".join(texts), "a submission was lost"
    return each * at_once / took_s


if __name__ == "__main__":
    main()
