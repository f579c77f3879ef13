"""What Slurm can do about the shards of a job that runs already: tries each way on a private Slurm and prints a table.

    PYTHONPATH=. python bench/running_gres.py

One node with one simulated GPU of 16 shards, jobs in a partition that rad.toml does not name.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from lab.cluster import Cluster
from lab.daemons import LabError
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place, home_of
from slurm_plugin.core.errors import CommandError

SHARDS = 16
STARTS_S = 8.0
"""A job that may start does so in this time."""

LONG = ("-p", "plain", "--wrap", "sleep 600")


class Tries:
    """One way after the other, each on an empty node."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.jobs = cluster, Jobs(cluster, folder)

    def running(self, *argv: str) -> int:
        """Submit a job and return its id once it runs."""
        job = self.jobs.submit(*argv, *LONG)
        assert job.job_id is not None, job.messages
        self.jobs.wait(job.job_id, "RUNNING")
        return job.job_id

    def starts(self, shards: int) -> str:
        """Return whether a further job of this size starts."""
        job = self.jobs.submit(f"--gres=shard:{shards}", *LONG)
        if job.job_id is None:
            return f"one more of {shards} shards is refused ({last(job.messages)})"
        with contextlib.suppress(LabError):
            self.jobs.wait(job.job_id, "RUNNING", timeout_s=STARTS_S)
        row = self.jobs.fields(job.job_id)
        return f"one more of {shards} shards is {row['JobState']} ({row.get('Reason', '')})"

    def scontrol(self, *argv: str) -> str:
        """Return what scontrol answers."""
        try:
            return last(self.cluster.slurm("scontrol", *argv)) or "accepted"
        except CommandError as exc:
            return f"refused: {last(exc.output)}"

    def used(self) -> str:
        """Return what Slurm counts as used of the node."""
        return self.cluster.slurm("sinfo", "-h", "-N", "-O", "Gres:40,GresUsed:60").strip()

    def shrink(self, spelling: str) -> str:
        """Ask for fewer shards of a running job."""
        job = self.running("--gres=shard:12")
        answer = self.scontrol("update", f"JobId={job}", spelling)
        row = self.jobs.fields(job)
        asks = row.get("TresPerNode", "?")
        return f"{answer}; the job asks for {asks}; {self.used()}; {self.starts(8)}"

    def component(self) -> str:
        """End one component of a heterogeneous job."""
        job = self.jobs.submit(
            "-p", "plain", "--gres=shard:6", ":", "-p", "plain", "--gres=shard:6", "--wrap", "sleep 600"
        )
        if job.job_id is None:
            return f"refused: {last(job.messages)}"
        with contextlib.suppress(LabError):
            self.jobs.wait(job.job_id, "RUNNING", timeout_s=STARTS_S)
        states = [self.jobs.state(f"{job.job_id}+{n}") for n in (0, 1)]
        try:
            answer = last(self.cluster.slurm("scancel", f"{job.job_id}+1")) or "accepted"
        except CommandError as exc:
            answer = f"refused: {last(exc.output)}"
        told = self.starts(8)
        after = [self.jobs.state(f"{job.job_id}+{n}") for n in (0, 1)]
        return f"{states}; {answer}; then {after}; {told}"

    def companion(self) -> str:
        """End a job of its own that holds what the first needs for its start alone."""
        self.running("--gres=shard:4")
        other = self.running("--gres=shard:8")
        self.cluster.slurm("scancel", str(other))
        return self.starts(8)

    def node(self) -> str:
        """Give the node more shards while a job runs."""
        self.running("--gres=shard:12")
        answer = self.scontrol("update", "NodeName=n0", f"Gres=gpu:1,shard:{2 * SHARDS}")
        told = f"{answer}; {self.used()}; {self.starts(8)}"
        self.scontrol("update", "NodeName=n0", f"Gres=gpu:1,shard:{SHARDS}")
        return told

    def stepwise(self) -> str:
        """Suspend a job."""
        job = self.running("--gres=shard:12")
        answer = self.scontrol("suspend", str(job))
        return f"{answer}; {self.used()}; {self.starts(8)}"


def last(text: str) -> str:
    """Return the last line of an answer."""
    return text.strip().splitlines()[-1] if text.strip() else ""


def main() -> None:
    """Try everything."""
    home, _ = home_of(Path(__file__).resolve().parent.parent)
    place = Place(root=home / "running-gres", venv=home / "venv")
    cluster = Cluster(place)
    try:
        cluster.up(ClusterSpec(nodes=(NodeSpec(name="n0", gpu_mib=(SHARDS << 10,)),)))
        folder = place.root / "jobs"
        folder.mkdir(mode=0o777, exist_ok=True)
        folder.chmod(0o777)
        tries = Tries(cluster, folder)
        print(cluster.slurm("scontrol", "--version").strip())
        ways: dict[str, Callable[[], str]] = {
            "update Gres=shard:4": lambda: tries.shrink("Gres=shard:4"),
            "update TresPerNode=gres/shard:4": lambda: tries.shrink("TresPerNode=gres/shard:4"),
            "update ReqTRES": lambda: tries.shrink("ReqTRES=gres/shard=4"),
            "scancel one component": tries.component,
            "scancel a companion": tries.companion,
            "update NodeName Gres": tries.node,
            "suspend": tries.stepwise,
        }
        for name, way in ways.items():
            try:
                print(f"{name}: {way()}", flush=True)
            except (LabError, CommandError, AssertionError) as exc:
                print(f"{name}: {exc}", flush=True)
            cluster.cancel_jobs()
    finally:
        cluster.down()


if __name__ == "__main__":
    sys.exit(main())
