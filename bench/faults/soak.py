"""Soak test: run thousands of jobs on a private cluster of simulated nodes, and record what grows.

    flock /tmp/cluster.lock .rad/venv/bin/python -m bench.faults.soak --jobs 5000 --nodes 16 --out soak.json
    .rad/venv/bin/python -m bench.faults.soak --jobs 5000 --nodes 16 --alone --out soak-alone.json    # Slurm alone
    python -m bench.faults.soak --plot soak.json soak-alone.json          # needs matplotlib; draws .rad/soak.png

The trainings sleep (lab/hold.sh) and so cost next to no processor time. Each job is an sbatch of its own; --rate is
what the machine bears: each job starts a dozen processes, and two cores that other work shares took 4 jobs/s, all late.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lab.cluster import Cluster  # noqa: E402 - run from the checkout
from lab.jobs import ENDED, Jobs  # noqa: E402
from lab.load import HOLD, LoadJob, equal_nodes  # noqa: E402
from lab.place import ClusterSpec, Place, home_of  # noqa: E402
from lab.sentinel import Sentinel  # noqa: E402
from slurm_plugin.core.errors import CommandError  # noqa: E402
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus  # noqa: E402

CHUNK = 10
"""Submissions in a row, by one user."""
KINDS = (
    LoadJob(name="share-4g", mib=4000, seconds=24),
    LoadJob(name="share-9g", mib=9000, seconds=16),
    LoadJob(name="share-14g", mib=14_000, seconds=20),
    LoadJob(name="alone", mib=12_000, seconds=16),
)
SHARES = (0, 1, 0, 2, 0, 1, 3, 0)
"""The order of kinds: one chunk in eight has each job's GPU alone."""
MOST_WAITING = 200
"""More jobs than this in the queue, and the arrival waits: the machine is too slow for the rate."""
SAMPLE_S = 10.0
MIB = 1 << 20


class Soak:
    """One run."""

    def __init__(self, cluster: Cluster, *, jobs: int, nodes: int, rate: float, with_rad: bool) -> None:
        """Prepare.

        Args:
            cluster: It runs.
            jobs: How many jobs in all.
            nodes: Nodes of the cluster.
            rate: Submissions a second at most.
            with_rad: Whether the cluster runs RAD.
        """
        self.cluster, self.jobs, self.nodes, self.rate, self.with_rad = cluster, jobs, nodes, rate, with_rad
        self.folder = cluster.place.root / "load"
        self.samples: list[dict[str, Any]] = []
        self.submitted = 0
        self.submit_s: list[float] = []
        self._prepare()

    def _prepare(self) -> None:
        self.folder.mkdir()
        self.folder.chmod(0o1777)
        shutil.copy(HOLD, self.folder / "hold.sh")
        (self.folder / "starts").touch()
        (self.folder / "starts").chmod(0o666)
        for devices in (self.cluster.place.root / "gpus").iterdir():
            lines = [f"{gpu.index} {gpu.uuid}\n" for gpu in SimulatedGpus(devices).gpus()]
            (devices / "names").write_text("".join(lines))

    def run(self, limit_s: float) -> None:
        """Submit all, and return when all have ended or time is over."""
        began_s = last_s = time.monotonic()
        turn = 0
        while time.monotonic() - began_s < limit_s:
            counts = self.counts()
            if counts is not None:
                due = self.rate * (time.monotonic() - began_s)
                if self.submitted < self.jobs and self.submitted <= due and counts["PENDING"] < MOST_WAITING:
                    self._submit(KINDS[SHARES[turn % len(SHARES)]], turn)
                    turn += 1
                elif self.submitted >= self.jobs and not sum(counts.values()):
                    break
            if time.monotonic() - last_s >= SAMPLE_S:
                last_s = time.monotonic()
                self._sample(last_s - began_s, counts or Counter())
            time.sleep(0.3)
        self._sample(time.monotonic() - began_s, self.counts() or Counter())

    def _submit(self, job: LoadJob, turn: int) -> None:
        count = min(CHUNK, self.jobs - self.submitted)
        user = ("nobody", "games")[turn % 2]
        wrap = f"exec sh {self.folder}/hold.sh {job.mib} {job.seconds}"
        options = ("-J", job.name, f"--array=1-{count}", "--mem=100", "--requeue", "--output=/dev/null")
        argv = (*options, *job.request(with_rad=self.with_rad), "--wrap", wrap)
        began_s = time.monotonic()
        env = {"RAD_LOAD": str(self.folder / "starts")}
        result = Jobs(self.cluster, self.folder).submit(*argv, user=user, env=env)
        if result.job_id is None:
            print(f"not submitted: {result.messages}", flush=True)
            return
        self.submit_s.append(time.monotonic() - began_s)
        self.submitted += count

    def counts(self) -> Counter[str] | None:
        """Return how many jobs of each state Slurm has, tasks of arrays counted one by one; None if it is away."""
        try:
            rows = self.cluster.slurm("squeue", "-h", "-r", "-o", "%T", timeout_s=20).split()
        except CommandError:
            return None
        return Counter(rows)

    def _sample(self, at_s: float, counts: Counter[str]) -> None:
        daemons = self.cluster.daemons
        place = self.cluster.place
        monitors = [rss_mib(daemons.pid(f"monitor-n{n}")) for n in range(self.nodes)]
        lines = (self.folder / "starts").read_text().splitlines()
        self.samples.append(
            {
                "at_s": round(at_s, 1),
                "submitted": self.submitted,
                "done": sum(line.startswith("end") for line in lines),
                "pending": counts["PENDING"],
                "running": counts["RUNNING"],
                "radd_mib": rss_mib(daemons.pid("radd")),
                "monitor_mib": max(monitors, default=0.0),
                "slurmctld_mib": rss_mib(daemons.pid("slurmctld")),
                "ledger_kib": max(
                    (size_of(place.run / f"n{n}" / "ledger") / 1024 for n in range(self.nodes)),
                    default=0,
                ),
                "run_kib": tree_size(place.run) / 1024,
                "state_kib": tree_size(place.root / "state") / 1024,
                "log_mib": sum(
                    size_of(path)
                    for path in place.log.glob("*")
                    if not path.name.startswith(("slurm", "munge"))
                )
                / MIB,
                "load": os.getloadavg()[0],
            }
        )
        print(self.samples[-1], flush=True)


def rss_mib(pid: int | None) -> float:
    """Return the resident memory of a process (proc(5), VmRSS); 0 if there is none."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmRSS")), 0.0)


def size_of(path: Path) -> int:
    """Return a file's size; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def tree_size(folder: Path) -> int:
    """Return the size of all regular files below a folder."""
    return sum(size_of(path) for path in folder.rglob("*") if path.is_file())


def hook_times(log: Path) -> dict[str, list[float]]:
    """Return what each Prolog and Epilog took, in milliseconds, from the hooks' own events (Python's start apart)."""
    found: dict[str, list[float]] = {}
    for path in log.glob("events.jsonl*"):
        for line in path.read_text(errors="replace").splitlines():
            try:
                row = json.loads(line)
                if row["event"] == "end":
                    found.setdefault(str(row["hook"]), []).append(float(row["after_ms"]))
            except (ValueError, KeyError, TypeError):
                continue
    return found


def main() -> None:
    """Run, or plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2.0, help="submissions a second")
    parser.add_argument("--limit-s", type=float, default=3000.0)
    parser.add_argument("--alone", action="store_true", help="Slurm without RAD")
    parser.add_argument("--out", type=Path, default=Path("soak.json"))
    parser.add_argument("--plot", nargs="+", type=Path, metavar="JSON")
    options = parser.parse_args()
    if options.plot:
        plot([json.loads(path.read_text()) for path in options.plot], ROOT / ".rad" / "soak.png")
        return
    home, _ = home_of(ROOT)
    cluster = Cluster(Place(root=home / f"soak-{os.getpid()}", venv=home / "venv"))
    try:
        result = soak(cluster, options)
    finally:
        cluster.down()
        shutil.rmtree(cluster.place.root, ignore_errors=True)
    options.out.write_text(json.dumps(result, indent=1))
    print(json.dumps({name: value for name, value in result.items() if name != "samples"}, indent=1))


def soak(cluster: Cluster, options: argparse.Namespace) -> dict[str, Any]:
    """Run one soak and return its figures."""
    nodes = equal_nodes(options.nodes)
    cluster.up(ClusterSpec(nodes=nodes, with_rad=not options.alone))
    run = Soak(cluster, jobs=options.jobs, nodes=options.nodes, rate=options.rate, with_rad=not options.alone)
    with Sentinel(cluster, [node.name for node in nodes]) as sentinel:
        run.run(options.limit_s)
        cluster.clock.sleep(5)
    last = run.samples[-1]
    times = hook_times(cluster.place.log)
    states = ended_states(cluster)
    return {
        "with_rad": run.with_rad,
        "jobs": run.submitted,
        "done": last["done"],
        "states": dict(states),
        "took_s": last["at_s"],
        "jobs_per_s": round(last["done"] / last["at_s"], 2),
        "submission_s": [round(x, 3) for x in quantiles(run.submit_s)],
        "hook_ms": {name: [round(x, 1) for x in quantiles(took)] for name, took in times.items()},
        "faults": dict(sentinel.findings.counts),
        "first": sentinel.findings.first,
        "watched": sentinel.findings.samples,
        "left_reserved": sum(len(cluster.allocations(node.name)) for node in nodes),
        "samples": run.samples,
    }


def ended_states(cluster: Cluster) -> Counter[str]:
    """Return how the jobs that Slurm still remembers ended."""
    text = cluster.slurm("squeue", "-h", "-r", "-t", ",".join(ENDED), "-o", "%T", timeout_s=60)
    return Counter(text.split())


def quantiles(values: list[float]) -> tuple[float, ...]:
    """Return median, 99th percentile and largest value; nothing of nothing."""
    if not values:
        return ()
    ordered = sorted(values)
    return statistics.median(ordered), ordered[int(0.99 * (len(ordered) - 1))], ordered[-1]


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Draw what grew, and what did not."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = (
        ("jobs", (("done", "done"), ("running", "running"), ("pending", "pending"))),
        (
            "memory, MiB",
            (("radd_mib", "radd"), ("monitor_mib", "largest rad-monitor"), ("slurmctld_mib", "slurmctld")),
        ),
        (
            "files, KiB",
            (("ledger_kib", "largest ledger"), ("run_kib", "all of paths.run"), ("state_kib", "state")),
        ),
        ("our logs, MiB", (("log_mib", "logs"),)),
    )
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7), constrained_layout=True)
    for axis, (title, lines) in zip(axes.flat, panels, strict=True):
        for result in results:
            style, suffix = ("-", "") if result["with_rad"] else ("--", ", Slurm alone")
            at_min = [sample["at_s"] / 60 for sample in result["samples"]]
            for name, label in lines:
                values = [sample[name] for sample in result["samples"]]
                if any(values):
                    axis.plot(at_min, values, style, label=label + suffix)
        axis.set(title=title, xlabel="minutes")
        if title.startswith("files"):
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
