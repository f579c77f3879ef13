"""A requeued job keeps its queue position: behind jobs that came earlier, before jobs that came later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from cluster_jobs import submit

from lab.cluster import Cluster
from lab.config import make_gpus
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import Standing
from tests.cluster.conftest import jobs_on, started

pytestmark = pytest.mark.cluster

NODE = replace(NodeSpec(name="n0"), gpu_mib=(41_600,))
WAITS = "while [ ! -e {} ]; do sleep 0.1; done"
SAID = "--comment=rad:memory=30G"
AGES = ("PriorityWeightAge=360000", "PriorityMaxAge=0-01:00:00", "PriorityCalcPeriod=1")
UNSURE_S = 75.0
"""More than PriorityCalcPeriod: of its age a job may lose as much."""
PRIORITIES = {
    "basic": ("PriorityType=priority/basic",),
    "equal": ("PriorityType=priority/multifactor",),
    "ages": ("PriorityType=priority/multifactor", *AGES),
}


@pytest.fixture(scope="module", params=list(PRIORITIES))
def ordered(place: Place, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    lines = (*PRIORITIES[request.param], "Licenses=late:1,never:1")
    own = replace(place, root=place.root.with_name(f"{place.root.name}-positions-{request.param}"))
    yield from started(own, ClusterSpec(nodes=(NODE,), slurm_conf=lines))


@pytest.fixture
def jobs(ordered: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(ordered, request)


def order(job: Standing) -> tuple[int, int, int]:
    """Return what Slurm sorts by."""
    return -job.priority, job.submitted_s, job.job_id


def test_a_requeued_job_keeps_its_queue_position_and_gains_none(jobs: Jobs, ordered: Cluster) -> None:
    control = SlurmCommands(slurm_conf=str(ordered.place.slurm_conf), timeout_s=10)
    seen: list[tuple[Standing, Standing | None]] = []

    def standing(job_id: int) -> Standing:
        found = control.standing(job_id)
        assert found is not None
        return found

    def has_turn() -> bool:
        """Look at both; who came earlier is never passed, as long as he waits."""
        mine, other = standing(first), control.standing(older)
        seen.append((mine, other if other is not None and other.state == "PENDING" else None))
        return mine.state == "PENDING" and mine.reason != "BeginTime" and order(mine) < order(standing(later))

    keeper = submit(jobs, "--licenses=late:1,never:1", "--wrap", WAITS.format("free"))
    jobs.wait(keeper, "RUNNING")
    older = submit(jobs, "--gpus=1", "--licenses=never:1", SAID, "--wrap", "true")
    blocker = submit(jobs, "--gpus=1", SAID, "--wrap", WAITS.format("go"))
    jobs.wait(blocker, "RUNNING")
    first = submit(jobs, "--gpus=1", SAID, "--wrap", "sleep 2")
    ordered.clock.sleep(UNSURE_S if "PriorityWeightAge" in ordered.place.slurm_conf.read_text() else 2)
    later = submit(jobs, "--gpus=1", "--licenses=late:1", SAID, "--wrap", "true")
    ordered.clock.sleep(2)
    assert order(standing(first)) < order(standing(later))

    unmanaged = SimulatedGpus(ordered.place.gpus("n0"))
    unmanaged.hold(make_gpus(NODE)[0].uuid, 12 * GIB, smact=0.1)
    try:
        ordered.clock.sleep(3)
        (jobs.folder / "go").touch()
        ordered.wait("it is put back", lambda: standing(first).restarts == 1, 30)
    finally:
        unmanaged.release()
    filler = jobs.submit("--nice=-1000000", "--gpus=1", SAID, "--wrap", WAITS.format("end"), user="root")
    assert filler.job_id is not None, filler.messages
    jobs.wait(filler.job_id, "RUNNING")
    assert standing(first).state == "PENDING", "it was to wait for the filler"

    ordered.clock.sleep(15)
    has_turn()
    ordered.slurm("scancel", str(older))
    ordered.wait("it stands where it stood", has_turn, 200)
    passed = [(mine, other) for mine, other in seen if other is not None and order(mine) < order(other)]
    assert not passed, "it stands above who came earlier"
    (jobs.folder / "free").touch()
    jobs.wait(keeper, "COMPLETED")
    (jobs.folder / "end").touch()
    done = {job: jobs.wait(job, "COMPLETED", timeout_s=60) for job in (first, later)}
    assert done[first]["StartTime"] < done[later]["StartTime"]
    assert done[first]["Restarts"] == "1"
    assert standing(first).nice == 0, "what was lent is taken back"
