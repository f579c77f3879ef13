"""A partition with GPUs of two types: a request for one type runs there, and nothing runs where it cannot fit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.config import RESERVED_MIB, shards_of
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.versions import traits
from tests.cluster.conftest import started
from tests.cluster.trainings import follow, train

pytestmark = pytest.mark.cluster

TYPES = {"small": 20480, "large": 81920}


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    nodes = (
        NodeSpec(name="n0", gpu_mib=(TYPES["small"],), gpu_type="small"),
        NodeSpec(name="n1", gpu_mib=(TYPES["large"],), gpu_type="large"),
    )
    tables = [
        f"[partition.gpu.gpus.{name}]\ngpu_memory_mib = {mib - RESERVED_MIB}\nshards_per_gpu = {shards_of(mib)}"
        for name, mib in TYPES.items()
    ]
    yield from started(place, ClusterSpec(nodes=nodes, rad_toml=tuple(tables)), name="types")


def on(memory: str) -> str:
    return f"srun {train(memory, 0.5)}"


def test_each_type_has_its_own_numbers(jobs: Jobs) -> None:
    """All at once: two that share the small GPU, one too large for it, one alone, one that outgrows the small one.

    The last only where a requeued job is back at once: on 22.05 that takes 18 s.
    """
    said = "--comment=rad:memory="
    requests = {
        "shared": ("--gres=gpu:small:1", f"{said}6G", "--wrap", on("5G")),
        "by job": ("--gpus=small:1", f"{said}6G", "--wrap", on("5G")),
        "large": ("--gpus=1", f"{said}40G", "--wrap", on("39G")),
        "alone": ("--gpus=1", f"{said}40G,policy=exclusive", "--wrap", on("30G")),
        "grows": ("--gpus=1", f"{said}18G", "--wrap", on("17G,60G")),
    }
    version = SlurmCommands(slurm_conf=str(jobs.cluster.place.slurm_conf), timeout_s=10).version()
    if not traits(version).gpu_after_requeue:
        del requests["grows"]
    ids = {}
    for name, argv in requests.items():
        job = jobs.submit(*argv)
        assert job.job_id is not None, job.messages
        ids[name] = job.job_id
    watcher = follow(jobs, ids.values())
    nodes = {name: [{node for node, _ in run.gpus} for run in watcher.of(job)] for name, job in ids.items()}
    assert (nodes["shared"], nodes["by job"]) == ([{"n0"}], [{"n0"}])
    assert (nodes["large"], nodes["alone"]) == ([{"n1"}], [{"n1"}])
    assert "grows" not in nodes or nodes["grows"][-1] == {"n1"}
    assert not any(run.neighbours for run in watcher.of(ids["alone"]))
    assert watcher.fullest_share <= 1.0
    refused = jobs.submit("--gpus=small:1", f"{said}30G", "--wrap", "true")
    assert refused.job_id is None and "one GPU has 19.4 GiB" in refused.messages


def test_a_step_finds_the_typed_gpu_of_its_job(jobs: Jobs) -> None:
    requests = ("--gres=gpu:1", "--gres=gpu:small:1", "--gpus=small:1", "--gpus-per-task=1", "-n1")
    steps = " && ".join(f"srun {ask} sh -c 'echo step on $CUDA_VISIBLE_DEVICES'" for ask in requests)
    for said in ((), ("--comment=rad:memory=6G",)):
        job = jobs.accepted("--gres=gpu:small:1", *said, "--wrap", steps)
        assert jobs.wait(job)["JobState"] == "COMPLETED", jobs.output(job)
        assert jobs.output(job).count("step on 0") == len(requests), jobs.output(job)
