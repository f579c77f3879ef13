"""A fixed load of jobs for a private cluster, and the result of each: lost, late, or done.

The same load runs with RAD and on Slurm alone, where a user would request shards and GPUs by hand.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.cluster import Cluster
from lab.config import SHARD_MIB
from lab.jobs import ENDED, Jobs
from lab.place import NodeSpec
from lab.sentinel import ALONE
from slurm_plugin.core.errors import CommandError
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus

HOLD = Path(__file__).with_name("hold.sh")
TICKS_S = 100
"""Clock ticks in a second, as proc(5) counts start times (sysconf(3), _SC_CLK_TCK; 100 on Linux)."""

CONTEXT_MIB = 1024
"""Memory that a job books in addition to what it uses."""

RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """One job of a load.

    Attributes:
        name: Begins with ALONE if its GPUs must be dedicated.
        mib: Memory that it uses on each GPU.
        seconds: How long it runs.
        gpus: Number of GPUs that it requests.
        user: The submitting user.
    """

    name: str
    mib: int
    seconds: float
    gpus: int = 1
    user: str = "nobody"

    def request(self, *, with_rad: bool) -> tuple[str, ...]:
        """Return the options of sbatch that request its GPUs."""
        shared = not self.name.startswith(ALONE)
        if not with_rad:
            shards = -(-(self.mib + CONTEXT_MIB) // SHARD_MIB)
            return (f"--gres=shard:{shards}" if shared else f"--gres=gpu:{self.gpus}",)
        if self.gpus > 1:
            return (f"--gres=gpu:{self.gpus}",)
        policy = "" if shared else ",policy=exclusive"
        return ("--gpus=1", f"--comment=rad:memory={self.mib + CONTEXT_MIB}M{policy}")


def mixed(count: int) -> tuple[LoadJob, ...]:
    """Return this many jobs of two users: most share, one in four has a GPU alone, one in twelve has two."""
    jobs = []
    for number in range(count):
        user = ("nobody", "games")[number % 2]
        if number % 12 == 5:
            jobs.append(LoadJob(name=f"{ALONE}-{number}", mib=20_000, seconds=4, gpus=2, user=user))
        elif number % 4 == 2:
            jobs.append(LoadJob(name=f"{ALONE}-{number}", mib=10_000, seconds=5, user=user))
        else:
            mib, seconds = ((4000, 6), (8000, 4), (12000, 5))[number % 3]
            jobs.append(LoadJob(name=f"share-{number}", mib=mib, seconds=seconds, user=user))
    return tuple(jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """Result of a job.

    Attributes:
        state: Its last state in Slurm; "" if Slurm forgot the job.
        delay_s: From its submission to the start of its last run; None if it never started.
        done: Whether it finished its work, as reported by its process.
        restarts: How often Slurm started it again.
    """

    state: str
    delay_s: float | None
    done: bool
    restarts: int


class ClusterLoad:
    """A load on a cluster."""

    def __init__(
        self, cluster: Cluster, jobs: Sequence[LoadJob], *, with_rad: bool, every_s: float = 1.0
    ) -> None:
        """Prepare.

        Args:
            cluster: The running cluster.
            jobs: The jobs, submitted in this order.
            with_rad: Whether the cluster has RAD.
            every_s: Time from one submission to the next.
        """
        self.jobs, self.with_rad, self.every_s = jobs, with_rad, every_s
        self.cluster = cluster
        self.folder = cluster.place.root / "load"
        self.submitted_s: dict[str, float] = {}
        self.ids: dict[str, int] = {}
        self.submit_took_s: list[float] = []
        self._log = self.folder / "starts"
        self._some = threading.Condition()
        self._prepare()
        self._submit = Jobs(cluster, self.folder).submit

    def _prepare(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.folder.chmod(0o1777)
        shutil.copy(HOLD, self.folder / "hold.sh")
        self._log.touch()
        self._log.chmod(0o666)
        for devices in (self.cluster.place.root / "gpus").iterdir():
            lines = [f"{gpu.index} {gpu.uuid}\n" for gpu in SimulatedGpus(devices).gpus()]
            (devices / "names").write_text("".join(lines))

    def run(self, fault: Callable[[], None], *, after: int, give_up_s: float) -> dict[str, Fate]:
        """Submit all jobs, cause the fault during it, wait for the end of each and return the results.

        Args:
            fault: Breaks something and repairs it.
            after: Number of submitted jobs when it begins.
            give_up_s: A job that has not ended this long after the last submission is lost.
        """
        thread = threading.Thread(target=self._submit_all, daemon=True)
        thread.start()
        with self._some:
            self._some.wait_for(lambda: len(self.ids) >= after, timeout=60 + after * 5)
        fault()
        thread.join()
        end_s = self.cluster.clock.monotonic_s() + give_up_s
        while self.cluster.clock.monotonic_s() < end_s and not all(self._over().values()):
            self.cluster.clock.sleep(0.5)
        return self._fates()

    def _submit_all(self) -> None:
        clock = self.cluster.clock
        next_s = clock.monotonic_s()
        for job in self.jobs:
            self._submit_one(job)
            next_s = max(next_s + self.every_s, clock.monotonic_s())
            clock.sleep(max(0.0, next_s - clock.monotonic_s()))

    def _submit_one(self, job: LoadJob) -> None:
        """Submit a job; while Slurm does not answer, try again as a user would."""
        options = (
            "-J",
            job.name,
            "--requeue",
            "--mem=100",
            "--output=/dev/null",
            *job.request(with_rad=self.with_rad),
        )
        wrap = f"exec sh {self.folder}/hold.sh {job.mib} {job.seconds}"
        for _ in range(120):
            with self.cluster.submissions:
                self.submitted_s.setdefault(job.name, boot_s())
                began_s = self.cluster.clock.monotonic_s()
                answer = self._submit(
                    *options, "--wrap", wrap, user=job.user, env={"RAD_LOAD": str(self._log)}
                )
            if answer.job_id is not None:
                self.submit_took_s.append(self.cluster.clock.monotonic_s() - began_s)
                break
            self.cluster.clock.sleep(RETRY_S)
        with self._some:
            self.ids[job.name] = answer.job_id or 0
            self._some.notify_all()

    def _over(self) -> dict[str, bool]:
        rows = self._rows()
        return {job.name: rows.get(job.name, {}).get("JobState") in ENDED for job in self.jobs}

    def _rows(self) -> dict[str, Mapping[str, str]]:
        """Return each job as Slurm shows it, by name.

        Of two jobs with one name (after a submission with a lost answer) it is the one that the user knows.
        """
        known = set(self.ids.values())
        rows = sorted(Jobs(self.cluster, self.folder).all_fields().items(), key=lambda row: row[0] in known)
        return {fields.get("JobName", ""): fields for _, fields in rows}

    def _fates(self) -> dict[str, Fate]:
        starts: dict[str, float] = {}
        done = set()
        for line in self._log.read_text().splitlines():
            kind, name, number = line.split()[:3]
            if kind == "start":
                starts[name] = int(number) / TICKS_S
            else:
                done.add(name)
        try:
            rows = self._rows()
        except CommandError:
            rows = {}
        return {
            job.name: Fate(
                state=rows.get(job.name, {}).get("JobState", ""),
                delay_s=starts[job.name] - self.submitted_s[job.name] if job.name in starts else None,
                done=job.name in done,
                restarts=int(rows.get(job.name, {}).get("Restarts", "0")),
            )
            for job in self.jobs
        }


def boot_s() -> float:
    """Return the seconds since boot, the time base of process start times in the kernel."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def equal_nodes(count: int) -> tuple[NodeSpec, ...]:
    """Return this many equal nodes."""
    return tuple(NodeSpec(name=f"n{number}") for number in range(count))
