"""Try each form of request for a whole GPU next to jobs that share, on a real Slurm, and print what breaks.

    PYTHONPATH=. python bench/slurm/whole_gpu_forms.py

Four simulated GPUs. Every third of 48 jobs says nothing of RAD and starts a step with `srun --gres=gpu:1`; the others
book 12 GiB. Forms: all shards of a GPU, `gpu:1`, and both in one request. Run as root, after `make setup`.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from lab.cluster import Cluster
from lab.config import shards_of
from lab.jobs import ENDED, Jobs
from lab.place import ClusterSpec, NodeSpec, Place, home_of
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.versions import written

JOBS = 48
EVERY = 3
SEED = 7
LIMIT_S = 240.0


def main() -> int:
    """Print one row for each form."""
    checkout = Path(__file__).resolve().parents[2]
    home, _ = home_of(checkout)
    cluster = Cluster(Place(root=home / "forms", venv=home / "venv"))
    for typed in (True, False):
        for form in ("shards", "gpu"):
            cluster.up(ClusterSpec(nodes=(NodeSpec(name="n0"),), typed=typed))
            try:
                for path in cluster.place.etc.glob("rad*.toml"):
                    text = path.read_text()
                    path.write_text(
                        text.replace("\nsharing = ", f'\nexclusive_form = "{form}"\nsharing = ', 1)
                    )
                cluster.restart_radd()
                version = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf)).version()
                if form == "shards" and typed:
                    both = Jobs(cluster, Path("/tmp")).submit(
                        f"--gres=gpu:1,shard:{shards_of(40960)}",
                        "-p",
                        "plain",
                        "-o",
                        "/dev/null",
                        "--wrap",
                        "true",
                    )
                    print(
                        f"{written(version)} both: {'taken' if both.job_id else both.messages.strip()[:90]}"
                    )
                print(
                    f"{written(version)} {'typed' if typed else 'no type'}, {form}: {_load(cluster)}",
                    flush=True,
                )
            finally:
                cluster.down()
    return 0


def _load(cluster: Cluster) -> str:
    """Return what became of the jobs: of those with a GPU of their own, how many were requeued, and how often."""
    jobs = Jobs(cluster, Path("/tmp"))
    draw = random.Random(SEED)
    began_s = time.monotonic()
    alone, shared = [], []
    for number in range(JOBS):
        sleep = f"sleep {draw.uniform(2, 6):.1f}"
        if number % EVERY:
            argv = ("--gpus=1", "--comment=rad:memory=12G", "--wrap", sleep)
            shared.append(jobs.submit("-o", "/dev/null", *argv).job_id)
        else:
            argv = ("--gres=gpu:1", "--wrap", f"srun --gres=gpu:1 true && {sleep}")
            alone.append(jobs.submit("-o", "/dev/null", *argv).job_id)
    rows: dict[int, dict[str, str]] = {}
    while time.monotonic() - began_s < LIMIT_S:
        rows = jobs.all_fields()
        if all(row["JobState"] in ENDED for row in rows.values()):
            break
        time.sleep(1)
    ended = time.monotonic() - began_s
    restarts = [int(rows[job]["Restarts"]) for job in alone if job]
    failed = sum(rows[job]["JobState"] != "COMPLETED" for job in (*alone, *shared) if job)
    text = f"{sum(map(bool, restarts))} of {len(alone)} requeued, {sum(restarts)} times in all"
    return f"{text}; {failed} of {JOBS} not done; all after {ended:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
