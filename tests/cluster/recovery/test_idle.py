"""A job that holds GPU memory and computes nothing: named, warned, requeued as it was; the one that computes is not."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from tests.cluster.conftest import started

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.any_slurm("rad-monitor's measure of idleness; Slurm's part is that of test_recovery"),
]

NODES = tuple(NodeSpec(name=name, gpu_mib=(40960,)) for name in ("n0", "n1"))


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    spec = ClusterSpec(nodes=NODES, rad_toml=('idle_after = "6s"',))
    yield from started(place, spec, name="idle")


def starts(jobs: Jobs, node: str, smact: float) -> int:
    """Start a job on a GPU of its own: next to others, a stand-in that takes no CPU time is idle, too."""
    wrap = f"exec python3 fake_train.py --memory 5G --seconds 600 --smact {smact}"
    return jobs.accepted("-w", node, "--gpus=1", "--comment=rad:memory=6G", "--wrap", wrap)


def idle(cluster: Cluster, node: str) -> set[int]:
    """Return the jobs that `rad status` calls idle on a node."""
    config = cluster.place.etc / f"rad.{node}.toml"
    text = cluster.slurm(f"{cluster.place.venv}/bin/rad", "status", "--json", "--config", str(config))
    gpus = json.loads(text)["gpus"]
    return {job["job_id"] for gpu in gpus for job in gpu["jobs"] if job["idle_s"] is not None}


def acts(cluster: Cluster, action: str) -> None:
    cluster.set_rad("idle_action", json.dumps(action), restart=False)
    cluster.daemons.signal("monitor-n0", signal.SIGHUP)


def test_an_idle_job_is_named_and_then_treated_as_rad_toml_says(jobs: Jobs, cluster: Cluster) -> None:
    works, sleeps = starts(jobs, "n1", 0.5), starts(jobs, "n0", 0.0)
    cluster.wait("it is named", lambda: idle(cluster, "n0") == {sleeps}, 40)
    assert idle(cluster, "n1") == set()
    assert "computed nothing" not in jobs.fields(sleeps).get("AdminComment", "")

    acts(cluster, "warn")
    cluster.wait(
        "it is warned", lambda: "computed nothing" in jobs.fields(sleeps).get("AdminComment", ""), 30
    )
    assert (jobs.state(sleeps), jobs.restarts(sleeps)) == ("RUNNING", 0)
    requested = jobs.fields(sleeps)["TresPerNode"]

    acts(cluster, "requeue")
    cluster.wait("it is requeued", lambda: jobs.restarts(sleeps) == 1, 30)
    acts(cluster, "none")
    found = jobs.wait(sleeps, "RUNNING", timeout_s=60)
    assert "was idle, requeued unchanged" in found["AdminComment"]
    assert found["TresPerNode"] == requested
    assert (jobs.state(works), jobs.restarts(works)) == ("RUNNING", 0)
