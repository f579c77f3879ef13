"""Two nodes with GPUs of different sizes, and jobs that span them."""

from __future__ import annotations

import re

import pytest

from lab.config import RESERVED_MIB, shards_of
from lab.files import rewrite
from lab.jobs import Jobs
from slurm_plugin.core.units import GIB
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.versions import traits
from tests.cluster.trainings import follow, train

pytestmark = pytest.mark.cluster

TRAIN = "python3 fake_train.py --memory 1G --seconds 0.3"


def test_a_job_that_takes_whole_nodes_runs(wide_jobs: Jobs) -> None:
    """As shards it would wait for ever: Slurm gives whole nodes GPUs and no shards.

    It needs a node on which Slurm counts nothing any more, so a cluster of its own has it first.
    """
    job = wide_jobs.submit("--gpus=1", "--exclusive", "--comment=rad:memory=5G", "--wrap", f"srun {TRAIN}")
    assert job.job_id is not None and "gets a whole GPU" in job.messages, job.messages
    assert wide_jobs.wait(job.job_id)["JobState"] == "COMPLETED", wide_jobs.output(job.job_id)
    refused = wide_jobs.submit("--gres=shard:1", "--exclusive", "--wrap", "true")
    assert refused.job_id is None and "--exclusive" in refused.messages


def test_each_component_of_a_heterogeneous_job_has_what_slurm_gave_it(wide_jobs: Jobs) -> None:
    """All its tasks find the id of the first; the Prolog knows each component by an id of its own."""
    say = "srun --het-group=0,1 sh -c 'echo found $RAD_GPUS $RAD_KIND'"
    wait = "while [ ! -e go ]; do sleep 0.1; done"
    job = wide_jobs.accepted("--gres=gpu:1", ":", "--gres=shard:2", "--wrap", f"{say}; {wait}")
    cluster = wide_jobs.cluster
    cluster.wait("both have said", lambda: wide_jobs.output(job).count("found") == 2, 60)
    allocated = {row["job_id"]: row for node in ("n0", "n1") for row in cluster.allocations(node)}
    first, second = allocated[job], allocated[job + 1]
    assert (first["kind"], second["kind"], second["booked_bytes"]) == ("whole", "shared", 2 * GIB)
    said = {line for line in wide_jobs.output(job).splitlines() if line.startswith("found")}
    assert said == {f"found {row['gpus'][0]} {row['kind']}" for row in (first, second)}
    (wide_jobs.folder / "go").touch()
    done = wide_jobs.wait(job)
    assert done["JobState"] == "COMPLETED" and "rad2:" not in done.get("Comment", "")


def test_multi_node_jobs_get_what_they_requested(wide_jobs: Jobs) -> None:
    job = wide_jobs.accepted("-N2", "--gres=gpu:2", "--wrap", f"srun {TRAIN}")
    done = wide_jobs.wait(job)
    assert done["JobState"] == "COMPLETED", wide_jobs.output(job)
    assert wide_jobs.output(job).count("training on 2 GPU(s)") == 2


def test_jobs_share_on_both_nodes_within_each_nodes_own_gpus(wide_jobs: Jobs) -> None:
    wrap = ("--gpus=1", "--comment=rad:memory=30G", "--wrap", train("29G"))
    ids = [wide_jobs.accepted(*wrap) for _ in range(6)]  # one on each small GPU, two on each large one
    watcher = follow(wide_jobs, ids, together=ids)
    assert watcher.fullest_share <= 1.0
    seen = [(gpu, run) for job in ids for run in watcher.of(job) for gpu in run.gpus]
    assert {node for (node, _), _ in seen} == {"n0", "n1"}
    assert not any(run.neighbours for (node, _), run in seen if node == "n0")


def test_the_bound_at_submission_is_that_of_the_smallest_gpu(wide_jobs: Jobs) -> None:
    answer = wide_jobs.submit(f"--gres=shard:{shards_of(40960) + 1}", "--wrap", "true")
    assert answer.job_id is None
    assert f"at most {shards_of(40960)}" in answer.messages


def test_with_the_largest_gpus_numbers_a_job_goes_where_it_fits(wide_jobs: Jobs) -> None:
    """As `rad doctor` advises for a partition of several sizes, where a whole GPU is requested as gpu:1."""
    cluster = wide_jobs.cluster
    version = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10).version()
    if not traits(version).gpu_after_requeue:
        pytest.skip("before 23.11.5 a whole GPU is asked for as all its shards")
    with cluster.changed_rad_toml():
        for path in cluster.place.etc.glob("rad*.toml"):
            text = re.sub(
                r"(?m)^shards_per_gpu = .*", f"shards_per_gpu = {shards_of(81920)}", path.read_text()
            )
            rewrite(
                path, re.sub(r"(?m)^gpu_memory_mib = .*", f"gpu_memory_mib = {81920 - RESERVED_MIB}", text)
            )
        cluster.restart_radd()
        large = ("--gpus=1", "--comment=rad:memory=50G", "--wrap", train("49G"))
        alone = ("--gpus=1", "--comment=rad:policy=exclusive", "--wrap", train("1G"))
        ids = [wide_jobs.accepted(*argv) for argv in (large, large, alone, alone)]
        watcher = follow(wide_jobs, ids)
    runs = [watcher.of(job) for job in ids]
    assert {node for run in [*runs[0], *runs[1]] for node, _ in run.gpus} == {"n1"}
    assert not any(run.neighbours for each in runs[2:] for run in each)
