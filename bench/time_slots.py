"""How much sooner a training starts on a full cluster if it asks for short slots and goes on from its checkpoints.

    PYTHONPATH=. .rad/venv/bin/python bench/time_slots.py    # as root, after `make setup`; about eight minutes

A real Slurm on one node of three simulated GPUs. Two are taken for a while, a job that wants all three heads the
queue, and one GPU is idle. Three users each want a GPU for 45 s of work. Once they ask for ten minutes, as people do
who do not know; once for slots of a minute, saving at a signal and going back into the queue (examples/resume).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "examples" / "resume")]

from checkpoint import Slot, newest, save  # noqa: E402

from lab.cluster import Cluster  # noqa: E402
from lab.jobs import Jobs  # noqa: E402
from lab.place import ClusterSpec, NodeSpec, Place, home_of  # noqa: E402

GPUS, USERS = 3, 3
STEPS, STEP_S = 45, 1.0
TAKEN_S, HEAD_S = 150, 10
WAYS = {
    "ten minutes": ("--time=10",),
    "slots of a minute": ("--time=1", "--signal=B:USR1@10", "--requeue"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One job, in seconds after its submission."""

    first_start_s: float
    end_s: float
    runs: int
    steps: int


def train(folder: Path) -> None:
    """Be one run of a user's job."""
    slot = Slot()
    path = newest(folder)
    step = 0 if path is None else int(path.read_text())
    print(f"run {time.time()}", flush=True)
    while step < STEPS:
        time.sleep(STEP_S)
        step += 1
        print(f"step {step}", flush=True)
        if slot.is_over:
            save(folder, step, lambda file, done=step: file.write(b"%d" % done) and None)
            slot.come_back()
    print(f"end {time.time()}", flush=True)


def submitted(jobs: Jobs, name: str, wrap: str, *options: str) -> tuple[int, float]:
    """Submit a job that has its GPUs to itself, and return its id and when that was."""
    given = ("--comment=rad:policy=exclusive", "--open-mode=append", f"--output=out-{name}", *options)
    job = jobs.submit(*given, "--wrap", wrap)
    if job.job_id is None:
        raise SystemExit(f"{name}: {job.messages}")
    return job.job_id, time.time()


def seen_of(text: str, submitted_s: float) -> Seen:
    """Read what a user's job printed."""
    rows = [line.split() for line in text.splitlines() if line.startswith(("run ", "step ", "end "))]
    starts = [float(value) for word, value in rows if word == "run"]
    end_s = next(float(value) for word, value in rows if word == "end")
    steps = sum(word == "step" for word, _ in rows)
    return Seen(starts[0] - submitted_s, end_s - submitted_s, len(starts), steps)


def measured(cluster: Cluster, way: str) -> tuple[list[Seen], float]:
    """Run the scene, and return what the users saw and when the head of the queue started."""
    folder = cluster.place.root / "work" / way.replace(" ", "-")
    folder.mkdir(parents=True)
    folder.chmod(0o1777)
    jobs = Jobs(cluster, folder)
    taken = [
        submitted(jobs, f"taken-{i}", f"sleep {TAKEN_S}", "--gpus=1", "--time=3")[0] for i in range(GPUS - 1)
    ]
    for job in taken:
        jobs.wait(job, "RUNNING")
    head, head_s = submitted(jobs, "head", f"date +%s.%N; sleep {HEAD_S}", f"--gpus={GPUS}", "--time=1")
    jobs.wait(head, "PENDING")
    users = []
    for i in range(USERS):
        wrap = f"exec {sys.executable} {Path(__file__).resolve()} --train {folder}/checkpoints-{i}"
        users.append(submitted(jobs, f"user-{i}", wrap, "--gpus=1", *WAYS[way]))
    for job, _ in users:
        jobs.wait(job, "COMPLETED", "TIMEOUT", "FAILED", timeout_s=500)
    jobs.wait(head, timeout_s=300)
    outputs = [(folder / f"out-user-{i}").read_text() for i in range(USERS)]
    found = [seen_of(text, submitted_s) for text, (_, submitted_s) in zip(outputs, users, strict=True)]
    started_s = float((folder / "out-head").read_text().split()[0]) - head_s
    return found, started_s


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Short slots against long limits on a real Slurm.")
    parser.add_argument("--train", type=Path, metavar="FOLDER", help="be a user's job")
    options = parser.parse_args()
    if options.train is not None:
        train(options.train)
        return
    home, _ = home_of(CHECKOUT)
    cluster = Cluster(Place(root=home / "time-slots", venv=home / "venv"))
    node = NodeSpec(name="n0", gpu_mib=(40960,) * GPUS)
    print(
        "asked for | first start s | each user's | completion s | each user's | runs | steps | head started s"
    )
    for way in WAYS:
        try:
            cluster.up(ClusterSpec(nodes=(node,)))
            found, head_s = measured(cluster, way)
        finally:
            cluster.down()
        starts, ends = [one.first_start_s for one in found], [one.end_s for one in found]
        cells = (
            way,
            f"{statistics.mean(starts):.0f}",
            " ".join(f"{value:.0f}" for value in starts),
            f"{statistics.mean(ends):.0f}",
            " ".join(f"{value:.0f}" for value in ends),
            " ".join(str(one.runs) for one in found),
            " ".join(str(one.steps) for one in found),
            f"{head_s:.0f}",
        )
        print(" | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
