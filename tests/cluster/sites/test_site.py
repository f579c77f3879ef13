"""A site as they are: three kinds of nodes that share nothing, a login node of its own, partitions with policies of
their own, and users who name things as they like."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.config import RESERVED_MIB, shards_of
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from tests.cluster.conftest import started
from tests.cluster.trainings import follow, train

pytestmark = pytest.mark.cluster

SMALL_MIB, MIDDLE_MIB, LARGE_MIB = 24576, 40960, 81920
NODES = (
    NodeSpec(name="n0", gpu_mib=(MIDDLE_MIB, MIDDLE_MIB)),
    NodeSpec(name="n1", gpu_mib=(LARGE_MIB, LARGE_MIB)),
    NodeSpec(name="n2", gpu_mib=(SMALL_MIB, SMALL_MIB, SMALL_MIB)),
)


def partition(name: str, mib: int, *lines: str) -> str:
    numbers = f"gpu_memory_mib = {mib - RESERVED_MIB}\nshards_per_gpu = {shards_of(mib)}"
    return "\n".join([f"[partition.{name}]", "collocate = true", numbers, *lines])


SPEC = ClusterSpec(
    nodes=NODES,
    slurm_conf=(
        "PartitionName=large Nodes=n1 MaxTime=INFINITE State=UP",
        "PartitionName=packed Nodes=n2 MaxTime=INFINITE State=UP",
        "PartitionName=spread Nodes=n0 MaxTime=INFINITE State=UP",
    ),
    rad_toml=(
        partition("large", LARGE_MIB, 'default = "leave"'),
        partition("packed", SMALL_MIB, 'policy = "mug"', 'pin = "bound"'),
        partition("spread", MIDDLE_MIB, 'policy = "round_robin"', 'pin = "bound"', 'recovery = "off"'),
    ),
)


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    """Each node keeps its state in a folder of its own, and the login node has no more than a login node has."""
    for cluster in started(place, SPEC, name="site"):
        root = cluster.place.root
        for node in NODES:
            toml = cluster.place.etc / f"rad.{node.name}.toml"
            own = root / f"state-{node.name}"
            own.mkdir()
            toml.write_text(toml.read_text().replace(f'"{root}/state"', f'"{own}"'))
            assert str(own) in toml.read_text()
        make_login_node(cluster)
        yield cluster


def make_login_node(cluster: Cluster) -> None:
    """Lay out /etc/slurm of a login node: no key, no socket, no folder of the controller's or of a node's."""
    root, login = cluster.place.root, cluster.place.root / "login"
    (login / "rad").mkdir(parents=True)
    for name in ("slurm.conf", "cli_filter.lua"):
        shutil.copy(cluster.place.etc / name, login)
    for path in (cluster.place.etc / "rad").glob("*.lua"):
        text = path.read_text()
        text = text.replace(str(cluster.place.etc / "rad.toml"), str(login / "rad.toml"))
        (login / "rad" / path.name).write_text(text.replace(str(cluster.place.run), "/nowhere/run"))
    toml = (cluster.place.etc / "rad.toml").read_text()
    for folder in ("run", "state", "etc", "log"):
        toml = toml.replace(f'"{root}/{folder}', f'"/nowhere/{folder}')
    (login / "rad.toml").write_text(toml)


def test_gpus_of_three_sizes_are_filled_each_to_its_own_brim(jobs: Jobs) -> None:
    shared = ("--gpus=1", "--comment=rad:memory=20G", "--wrap", train("19G"))
    ids = [jobs.accepted(*shared) for _ in range(10)]  # 2 fit on n0 at once, 6 on n1, 3 on n2
    watcher = follow(jobs, ids, together=ids)
    assert watcher.fullest_share <= 1.0
    seen = {node for job in ids for run in watcher.of(job) for node, _ in run.gpus}
    assert seen == {node.name for node in NODES}
    assert any(run.neighbours for job in ids for run in watcher.of(job))


def test_an_exclusive_gpu_is_exclusive_on_every_size_of_gpu(jobs: Jobs) -> None:
    alone = ("--gpus=1", "--comment=rad:memory=5G,policy=exclusive", "--wrap", train("5G"))
    shared = ("--gpus=1", "--comment=rad:memory=5G", "--wrap", train("5G"))
    order = [shared, alone, shared, shared, alone, shared, alone, shared]
    ids = [jobs.accepted(*argv) for argv in order]
    watcher = follow(jobs, ids, timeout_s=150)
    for job, argv in zip(ids, order, strict=True):
        if argv is alone:
            assert watcher.of(job) and not any(run.neighbours for run in watcher.of(job))


def test_a_multi_node_job_gets_two_gpus_of_each_kind_next_to_shared_jobs(jobs: Jobs) -> None:
    shared = jobs.accepted("--partition=packed", "--gpus=1", "--comment=rad:memory=5G", "--wrap", train("5G"))
    jobs.wait(shared, "RUNNING")
    wide = jobs.accepted("-N3", "--gres=gpu:2", "--wrap", f"srun {train('9G')}")
    watcher = follow(jobs, [shared, wide], gpus={wide: 6}, together=[shared, wide])
    (run,) = watcher.of(wide)
    assert sorted(node for node, _ in run.gpus) == ["n0", "n0", "n1", "n1", "n2", "n2"]
    assert not run.neighbours
    assert jobs.output(wide).count("training on 2 GPU(s)") == 3


@pytest.mark.parametrize(
    ("name", "most_mib"), [("gpu", SMALL_MIB), ("spread", MIDDLE_MIB), ("large", LARGE_MIB)]
)
def test_each_partition_has_its_own_bound(jobs: Jobs, name: str, most_mib: int) -> None:
    most_gib = shards_of(most_mib)
    fits = jobs.submit("-H", "-p", name, "--gpus=1", f"--comment=rad:memory={most_gib}G", "--wrap", "true")
    beyond = jobs.submit(
        "-H", "-p", name, "--gpus=1", f"--comment=rad:memory={most_gib + 1}G", "--wrap", "true"
    )
    assert fits.job_id is not None, fits.messages
    assert beyond.job_id is None
    assert f"{most_gib + 1}.0 GiB" in beyond.messages


def test_a_partition_that_leaves_jobs_leaves_them_and_others_give_them_a_gpu(jobs: Jobs) -> None:
    left = jobs.fields(jobs.accepted("-H", "-p", "large", "--gres=gpu:1", "--wrap", "true"))
    given = jobs.fields(jobs.accepted("-H", "-p", "spread", "--gres=gpu:1", "--wrap", "true"))
    assert "rad2:" not in left.get("Comment", "")
    assert "rad2:whole:" in given["Comment"]


@pytest.mark.parametrize(("name", "policy"), [("packed", "mug"), ("spread", "round_robin")])
def test_each_partition_places_by_its_own_policy(jobs: Jobs, name: str, policy: str) -> None:
    job = jobs.accepted("-p", name, "--gpus=1", "--comment=rad:memory=5G", "--wrap", "env")
    jobs.wait(job, "COMPLETED")
    assert f"RAD_PLACEMENT={policy}: " in jobs.output(job)


def test_recovery_can_be_off_in_one_partition_alone(jobs: Jobs) -> None:
    grows = (
        "--gpus=1",
        "--comment=rad:memory=4G",
        "--wrap",
        "python3 fake_train.py --memory 3.8G,20G --seconds 2",
    )
    on, off = jobs.accepted("-p", "packed", *grows), jobs.accepted("-p", "spread", *grows)
    assert jobs.wait(on, "COMPLETED", timeout_s=60)["Restarts"] == "1"
    assert jobs.wait(off, "FAILED")["Restarts"] == "0"


def test_a_login_node_without_key_or_socket_is_enough_to_submit(jobs: Jobs, cluster: Cluster) -> None:
    env = {"SLURM_CONF": str(cluster.place.root / "login" / "slurm.conf")}
    answer = jobs.submit("share_resnet18.sh", env=env)
    assert answer.job_id is not None, answer.messages
    assert "; booked " in answer.messages
    done = jobs.wait(answer.job_id, "COMPLETED", timeout_s=60)
    assert "shard:" in done["TresPerNode"] and " rad2:shared:" in f" {done['Comment']}"
    shell = f"cd '{jobs.folder}' && srun --gpus=1 --comment=rad:memory=5G env"
    text = cluster.slurm("runuser", "-u", "nobody", "--", "sh", "-c", shell, env=env, timeout_s=40)
    assert "SLURM_SHARDS_ON_NODE=5" in text


ODD = "größe & 100% «modèle» 'n°1'"
"""Spaces, quotes, a percent sign and letters of several alphabets; no slash, which no name may hold."""


@pytest.fixture
def odd_jobs(jobs: Jobs) -> Jobs:
    """Jobs in a folder with such a name."""
    folder = jobs.folder / ODD
    shutil.copytree(Path(__file__).resolve().parents[3] / "examples", folder)
    folder.chmod(0o1777)
    return Jobs(jobs.cluster, folder)


def test_a_job_with_odd_names_everywhere_is_estimated_shared_and_recovered(odd_jobs: Jobs) -> None:
    """Its output must be found by that name too: only there stands that memory ran out."""
    folder = odd_jobs.folder
    shutil.copy(folder / "models" / "resnet18_cifar_torchsummary.txt", folder / f"{ODD}.txt")
    (folder / f"{ODD}.sh").write_text(
        f'#!/bin/bash\n#SBATCH --gpus=1 --open-mode=append\n#RAD model="{ODD}.txt" batch_size=128 optimizer=sgd\n'
        "python3 fake_train.py --memory 0.5G,1.9G,20G --seconds 3\n"
    )
    output = f"aus gabe ö %j {ODD.replace('%', '%%')}.txt"
    answer = odd_jobs.submit(f"--job-name={ODD}", f"--output={output}", f"{ODD}.sh")
    assert answer.job_id is not None, answer.messages
    assert "; booked " in answer.messages
    done = odd_jobs.wait(answer.job_id, "COMPLETED", timeout_s=60)
    text = (folder / f"aus gabe ö {answer.job_id} {ODD}.txt").read_text()
    assert "OutOfMemoryError" in text and "phase 3 of 3 done" in text
    assert done["Restarts"] == "1"


def test_a_job_name_in_the_name_of_its_output_is_found(odd_jobs: Jobs) -> None:
    name = "größe n°1"
    job = odd_jobs.accepted(f"--job-name={name}", "--output=%x ü %j.txt", "--open-mode=append", "--gpus=1",
        "--comment=rad:memory=4G größe", "--wrap", "python3 fake_train.py --memory 3.8G,20G --seconds 3",
    )  # fmt: skip
    assert odd_jobs.wait(job, "COMPLETED", timeout_s=60)["Restarts"] == "1"
    assert "phase 2 of 2 done" in (odd_jobs.folder / f"{name} ü {job}.txt").read_text()
