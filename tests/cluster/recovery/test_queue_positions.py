"""A requeued job keeps its queue position: behind jobs that came earlier, before jobs that came later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.cluster import Cluster
from lab.config import make_gpus
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.units import GIB
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import Standing
from tests.cluster.conftest import started
from tests.cluster.trainings import unmanaged

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
def cluster(place: Place, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    lines = (*PRIORITIES[request.param], "Licenses=late:1,never:1")
    yield from started(place, ClusterSpec(nodes=(NODE,), slurm_conf=lines), name=f"positions-{request.param}")


def order(job: Standing) -> tuple[int, int, int]:
    """Return what Slurm sorts by."""
    return -job.priority, job.submitted_s, job.job_id


def test_a_requeued_job_keeps_its_queue_position_and_gains_none(jobs: Jobs, cluster: Cluster) -> None:
    control = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)
    seen: list[tuple[Standing, Standing | None]] = []

    def standing(job_id: int) -> Standing:
        found = control.standing(job_id)
        assert found is not None
        return found

    def has_turn() -> bool:
        """Look at both; the earlier job is never passed, as long as it waits."""
        mine, other = standing(first), control.standing(older)
        seen.append((mine, other if other is not None and other.state == "PENDING" else None))
        return mine.state == "PENDING" and mine.reason != "BeginTime" and order(mine) < order(standing(later))

    keeper = jobs.accepted("--licenses=late:1,never:1", "--wrap", WAITS.format("free"))
    jobs.wait(keeper, "RUNNING")
    older = jobs.accepted("--gpus=1", "--licenses=never:1", SAID, "--wrap", "true")
    blocker = jobs.accepted("--gpus=1", SAID, "--wrap", WAITS.format("go"))
    jobs.wait(blocker, "RUNNING")
    first = jobs.accepted("--gpus=1", SAID, "--wrap", "sleep 2")
    cluster.clock.sleep(UNSURE_S if "PriorityWeightAge" in cluster.place.slurm_conf.read_text() else 2)
    later = jobs.accepted("--gpus=1", "--licenses=late:1", SAID, "--wrap", "true")
    cluster.wait("it stands first", lambda: order(standing(first)) < order(standing(later)), 20)
    fills = ("--hold", "--nice=-1000000", "--gpus=1", SAID, "--wrap", WAITS.format("end"))
    filler = jobs.accepted(*fills, user="root")
    with unmanaged(cluster, "n0", make_gpus(NODE)[0].uuid, 12 * GIB):
        (jobs.folder / "go").touch()
        cluster.wait("it is requeued", lambda: standing(first).restarts == 1, 30)
    cluster.slurm("scontrol", "release", str(filler))
    jobs.wait(filler, "RUNNING")
    assert standing(first).state == "PENDING", "it was to wait for the filler"

    cluster.clock.sleep(15)
    has_turn()
    cluster.slurm("scancel", str(older))
    cluster.wait("it has its former position", has_turn, 200)
    passed = [(mine, other) for mine, other in seen if other is not None and order(mine) < order(other)]
    assert not passed, "it stands above the earlier job"
    (jobs.folder / "free").touch()
    jobs.wait(keeper, "COMPLETED")
    (jobs.folder / "end").touch()
    done = {job: jobs.wait(job, "COMPLETED", timeout_s=60) for job in (first, later)}
    assert done[first]["StartTime"] < done[later]["StartTime"]
    assert done[first]["Restarts"] == "1"
    assert standing(first).nice == 0, "what was lent is taken back"
