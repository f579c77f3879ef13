"""One trial: a load of jobs on a fresh cluster, a fault among them, a sentinel next to them; and the row it gives."""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lab.cluster import Cluster
from lab.daemons import LabError
from lab.load import ClusterLoad, Fate, equal_nodes, mixed
from lab.place import ClusterSpec, Place
from lab.sentinel import Findings, Sentinel
from tests.timing import within

Fault = Callable[[Cluster], None]

SHORT = "short"
JOBS = {SHORT: 10, "long": 30}
"""Jobs of one trial: few where every push waits for the suite, more where figures are made."""

GIVE_UP_S = within(60.0)
"""A job that has not ended so long after the last submission is lost."""

LEFTOVER_S = 60.0
FIRST_JOB = f"FirstJobId={1 + os.getpid() % 50_000 * 1000}"
"""No two clusters on this machine have a job of one id: the guard of one would take the other's for its own."""

MEDIAN_S, LONGEST_S = 5.0, 20.0
"""Limits of the delay by a fault, beyond the delay on Slurm alone; the median's is longer on a busy machine."""

SHORT_LONGEST_S = within(40.0)
"""In the short form, whose machine may have other work: two put-backs of one job on 22.05, 18 s each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one run showed.

    Attributes:
        fates: What became of each job.
        findings: What the sentinel counted.
        leftovers: Allocations that had no job a minute after the last job's end.
    """

    fates: Mapping[str, Fate]
    findings: Findings
    leftovers: int

    @property
    def lost(self) -> list[str]:
        """Return the jobs whose work was not done in the end."""
        return [name for name, fate in self.fates.items() if not fate.done]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of docs/measurements/2026-11-faults.md.

    Attributes:
        fault: Its name.
        slurm: Slurm's version.
        jobs: Jobs of the trial.
        lost: Of these, whose work was not done in the end.
        lost_alone: The same with the same fault on Slurm alone.
        double_booked: Samples with a second job on an exclusive GPU, or an overfull or overbooked one.
        double_booked_alone: The same on Slurm alone, where users size shards by hand.
        samples: Samples in all.
        drained: Samples with a drained node.
        drained_alone: The same on Slurm alone.
        leftovers: Allocations left after a minute.
        orphans: Samples with an allocation that had no job for a minute.
        restarts: How often jobs were requeued or run again.
        median_s: Median of what jobs started later than on Slurm alone.
        longest_s: The longest of these.
    """

    fault: str
    slurm: str
    jobs: int
    lost: int
    lost_alone: int
    double_booked: int
    double_booked_alone: int
    samples: int
    drained: int
    drained_alone: int
    leftovers: int
    orphans: int
    restarts: int
    median_s: float
    longest_s: float


class Trials:
    """All trials of a session; what Slurm alone does is found once for each of its faults."""

    def __init__(self, place: Place, *, jobs: int, out: Path, slurm: str, commit: str) -> None:
        self._place, self._jobs, self._out, self._slurm = place, jobs, out, slurm
        self._commit = commit
        self._longest_s = SHORT_LONGEST_S if os.environ.get("RAD_FAULTS", SHORT) == SHORT else LONGEST_S
        self._alone: dict[str, Seen] = {}

    def row(
        self,
        name: str,
        fault: Fault,
        *,
        slurm_fault: Fault | None = None,
        spec: ClusterSpec | None = None,
        before: Fault | None = None,
        after: Fault | None = None,
        share: float = 0.5,
        give_up_s: float = GIVE_UP_S,
        venv: Path | None = None,
    ) -> Row:
        """Run a trial with us and, where it was not yet done, the same on Slurm alone; write the row down.

        Args:
            name: The fault, as the table calls it.
            fault: What happens amid the load.
            slurm_fault: What of it would happen to Slurm alone too; None: nothing.
            spec: The cluster; None for one node with four GPUs.
            before: What is prepared before the first submission.
            after: What is restored when the cluster has stopped.
            share: How much of the load has been submitted when it happens.
            give_up_s: A job that has not ended so long after the last submission is lost.
            venv: The environment of hooks and daemons, where it is not the usual one.
        """
        spec = spec or ClusterSpec(nodes=equal_nodes(1), slurm_conf=(FIRST_JOB,), answer_s=within(0.1))
        alone = self._on_slurm_alone(slurm_fault, spec, share, give_up_s)
        place = replace(self._place, venv=venv or self._place.venv)
        seen = self._try(fault, spec, place, before=before, after=after, share=share, give_up_s=give_up_s)
        row = row_of(name, self._slurm, seen, alone)
        with self._out.open("a") as file:
            file.write(json.dumps({**asdict(row), "commit": self._commit}) + "\n")
        late = sorted(((round(d, 1), n) for n, d in later(seen, alone).items()), reverse=True)[:4]
        print(
            f"\n{row}\nlost: {[(name, seen.fates[name]) for name in seen.lost]}\n"
            f"first: {seen.findings.first}\nlatest: {late}\n"
            f"slowest look: {seen.findings.slowest_look_s:.2f} s; alone: {alone.findings.first} {alone.lost}"
        )
        return row

    def check(self, name: str, fault: Fault, **more: object) -> None:
        """Run a trial and hold it against the aims.

        Raises:
            AssertionError: A job was lost, a GPU double-booked, a node drained, something left behind or too late.
        """
        row = self.row(name, fault, **more)  # type: ignore[arg-type]
        bad = {
            "lost": row.lost > row.lost_alone,
            "double-booked": row.double_booked > 0,
            "drained": row.drained > 0 and not row.drained_alone,
            "left over": row.leftovers > 0 or row.orphans > 0,
            "late": row.median_s > within(MEDIAN_S) or row.longest_s > self._longest_s,
        }
        assert not any(bad.values()), f"{[word for word, is_bad in bad.items() if is_bad]}: {row}"

    def _on_slurm_alone(self, fault: Fault | None, spec: ClusterSpec, share: float, give_up_s: float) -> Seen:
        key = f"{fault.__name__ if fault else 'nothing'} {len(spec.nodes)}"
        if key not in self._alone:
            bare = ClusterSpec(nodes=spec.nodes, slurm_conf=spec.slurm_conf, with_rad=False)
            self._alone[key] = self._try(
                fault or nothing, bare, self._place, share=share, give_up_s=give_up_s
            )
        return self._alone[key]

    def _try(
        self,
        fault: Fault,
        spec: ClusterSpec,
        place: Place,
        *,
        share: float,
        give_up_s: float,
        before: Fault | None = None,
        after: Fault | None = None,
    ) -> Seen:
        cluster = Cluster(replace(place, root=place.root / ("rad" if spec.with_rad else "alone")))
        try:
            cluster.up(spec)
            if before:
                before(cluster)
            load = ClusterLoad(cluster, mixed(self._jobs), with_rad=spec.with_rad)
            with Sentinel(cluster, [node.name for node in spec.nodes]) as sentinel:
                fates = load.run(lambda: fault(cluster), after=int(self._jobs * share), give_up_s=give_up_s)
                leftovers = _left(cluster, spec)
            return Seen(fates=fates, findings=sentinel.findings, leftovers=leftovers)
        finally:
            cluster.down()
            if after:
                after(cluster)
            _keep_logs(cluster, fault.__name__)


def nothing(cluster: Cluster) -> None:
    """Let the load run undisturbed."""


def row_of(name: str, slurm: str, seen: Seen, alone: Seen) -> Row:
    """Return the row of a trial next to the same on Slurm alone."""
    delays = later(seen, alone).values()
    return Row(
        fault=name,
        slurm=slurm,
        jobs=len(seen.fates),
        lost=len(seen.lost),
        lost_alone=len(alone.lost),
        double_booked=_booked_twice(seen.findings),
        double_booked_alone=_booked_twice(alone.findings),
        samples=seen.findings.samples,
        drained=seen.findings.counts["drained"],
        drained_alone=alone.findings.counts["drained"],
        leftovers=seen.leftovers,
        orphans=seen.findings.counts["orphan"],
        restarts=sum(fate.restarts for fate in seen.fates.values()),
        median_s=round(statistics.median(delays), 1) if delays else 0.0,
        longest_s=round(max(delays, default=0.0), 1),
    )


def later(seen: Seen, alone: Seen) -> dict[str, float]:
    """Return how much later each job started than on Slurm alone; one that never started there is left out."""
    delays = {}
    for name, fate in seen.fates.items():
        foreign = alone.fates[name].delay_s
        if fate.delay_s is not None and foreign is not None:
            delays[name] = max(0.0, fate.delay_s - foreign)
    return delays


def _booked_twice(findings: Findings) -> int:
    return sum(findings.counts[kind] for kind in ("double-booked", "overfull", "overbooked"))


def _left(cluster: Cluster, spec: ClusterSpec) -> int:
    def reserved() -> int:
        return sum(len(cluster.allocations(node.name)) for node in spec.nodes)

    try:
        cluster.wait("nothing is reserved", lambda: reserved() == 0, LEFTOVER_S)
    except (LabError, ValueError):
        return reserved()
    return 0


def _keep_logs(cluster: Cluster, name: str) -> None:
    """Copy the logs of a trial into the folder RAD_FAULTS_LOGS, if that is set."""
    if folder := os.environ.get("RAD_FAULTS_LOGS"):
        target = Path(folder, name, cluster.place.root.name)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(cluster.place.log, target)


__all__ = ["Fault", "Row", "Trials", "nothing"]
