"""Jobs of several GPUs that share them, on a cluster where three of ten jobs are such: what counts as their compute.

    PYTHONPATH=bench:. python bench/simulate_several.py [--jobs 2000] [--nodes 20]

Random jobs as in simulate_scale.py. "Ended" are jobs so slow beside others that Slurm would end them: past their limit
of twice the time that they take alone, half an hour at least, which RAD doubles.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from simulate_scale import crowd
from simulate_ways import SHARE, Way, by_sms, figures

WAYS = {
    "they keep their GPUs": Way(),
    "they share, counted by SM activity": Way(settings=SHARE, knows=by_sms),
    "**they share, counted by time**": Way(settings=SHARE),
    "the same, the trace's second time": Way(settings=SHARE, asked={"activity": "history"}),
}
SHOWN = ("mean_completion_s", "mean_waiting_multi_gpu_s", "makespan_s")


def main() -> None:
    """Print the table, relative to whole GPUs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        question = crowd(Path(folder), options.jobs, options.nodes)
        whole = figures(replace(question, baseline="whole"), Way())
        print("| | completion | jobs of several GPUs wait | makespan | slowdown | P95 | largest | ended |")
        print(f"|---|{'---|' * 7}")
        for name, way in WAYS.items():
            found = figures(question, way)
            shares = " | ".join(f"{found[name] / whole[name]:.2f}" for name in SHOWN)
            slowed = " | ".join(f"{found[f'{which}_slowdown']:.2f}" for which in ("median", "p95", "max"))
            print(f"| {name} | {shares} | {slowed} | {found['over_limit']} |", flush=True)


if __name__ == "__main__":
    main()
