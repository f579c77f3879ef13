"""Where cgroups confine devices: a job stays on the GPU that Slurm chose, and can open no other.

The device files belong to no driver, so opening one shows who answered: the kernel that no job is there (ENXIO), or
the cgroup that this job may not even ask (EPERM).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.simulated_gpus import GpuSpec
from slurm_plugin.slurm.versions import parse_version, traits
from tests.cluster.conftest import jobs_on, started
from tests.cluster.trainings import follow, train, unmanaged

pytestmark = pytest.mark.cluster

CGROUPS = Path("/sys/fs/cgroup")
SHARED = ("--gpus=1", "--comment=rad:memory=10G")
LOOK = r"""
import errno, os, pathlib, sys
answers = []
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    try:
        os.close(os.open(path, os.O_RDONLY))
        answers.append("opened")
    except OSError as error:
        answers.append(errno.errorcode[error.errno])
print("gpu_indices", os.environ.get("SLURM_JOB_GPUS", "none"))
print("gpus", os.environ.get("RAD_GPUS", "none"))
print("visible", os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
print("answers", *answers)
"""
"""What a job sees: Slurm's indices, its GPUs, and what each device file of the node answers."""


def why_not_confined() -> str | None:
    """Return why devices cannot be confined here; None if they can."""
    devices = CGROUPS / "devices"
    if not os.path.ismount(devices):
        return "no devices hierarchy of cgroup v1 is mounted here"
    if not os.access(devices, os.W_OK) or os.statvfs(devices).f_flag & os.ST_RDONLY:
        return f"{devices} is read-only here"
    if "a *:* rwm" not in (devices / "devices.list").read_text():
        return f"{devices} does not let all devices be granted here"
    return None


@pytest.fixture(scope="module")
def confined(place: Place) -> Iterator[Cluster]:
    """One node whose name, and so its cgroup, is used by no other job."""
    reason = why_not_confined()
    if reason is not None:
        pytest.skip(reason)
    node = f"confined{secrets.token_hex(4)}"  # two runs in namespaces of their own may have one process id
    try:
        yield from started(
            place, ClusterSpec(nodes=(NodeSpec(name=node),), confined=True, typed=False), name="confined"
        )
    finally:
        remove_cgroups(node)
        assert not left_cgroups(node)


def left_cgroups(node: str) -> list[Path]:
    return [path for path in CGROUPS.glob(f"*/**/*{node}*") if path.is_dir()]


def remove_cgroups(node: str) -> None:
    """Remove what a slurmd leaves, the innermost folders first."""
    for top in left_cgroups(node):
        for folder, _, _ in os.walk(top, topdown=False):
            Path(folder).rmdir()


@pytest.fixture
def confined_jobs(confined: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(confined, request)


def node_of(cluster: Cluster) -> str:
    return next(path.name for path in (cluster.place.root / "gpus").iterdir())


def make_gpus(cluster: Cluster) -> tuple[GpuSpec, ...]:
    return SimulatedGpus(cluster.place.gpus(node_of(cluster))).gpus()


def look(jobs: Jobs, *argv: str, stays: int = 0) -> int:
    """Submit a job that says what it sees, and stays for these seconds."""
    (jobs.folder / "look.py").write_text(LOOK)
    devices = jobs.cluster.place.root / "dev" / node_of(jobs.cluster)
    return jobs.accepted(*argv, "--wrap", f"python3 look.py '{devices}' && sleep {stays}")


def seen(jobs: Jobs, job: int, *, timeout_s: float = 60.0) -> dict[str, list[str]]:
    """Return what such a job saw, once it has said so."""
    lines: dict[str, list[str]] = {}

    def reported() -> bool:
        for line in jobs.output(job).splitlines():
            name, *values = line.replace(",", " ").split()
            lines[name] = values
        return "answers" in lines

    jobs.cluster.wait(f"job {job} says what it sees", reported, timeout_s)
    return lines


def expected(cluster: Cluster, gpu_indices: list[str]) -> dict[str, list[str]]:
    physical_gpus = make_gpus(cluster)
    answers = [
        "ENXIO" if str(physical_gpu.index) in gpu_indices else "EPERM" for physical_gpu in physical_gpus
    ]
    gpus = [physical_gpus[int(gpu_index)].uuid for gpu_index in gpu_indices]
    visible = [str(number) for number in range(len(gpu_indices))]  # Slurm counts what the job can reach
    return {"gpu_indices": gpu_indices, "gpus": gpus, "visible": visible, "answers": answers}


def test_a_job_is_on_the_gpu_of_its_index_and_can_open_no_other(confined_jobs: Jobs) -> None:
    alone = ("--gpus=1", "--comment=rad:memory=10G,policy=exclusive")
    ids = [look(confined_jobs, *argv, stays=600) for argv in (alone, SHARED, alone)]
    places = [seen(confined_jobs, job) for job in ids]
    for place in places:
        assert place == expected(confined_jobs.cluster, place["gpu_indices"])
    assert len({place["gpu_indices"][0] for place in places}) == len(ids)


def test_a_job_with_two_gpus_reaches_these_two(confined_jobs: Jobs) -> None:
    place = seen(confined_jobs, look(confined_jobs, "--gres=gpu:2"))
    assert len(place["gpu_indices"]) == 2
    assert place == expected(confined_jobs.cluster, place["gpu_indices"])


def test_a_job_without_gpus_reaches_none(confined_jobs: Jobs) -> None:
    place = seen(confined_jobs, look(confined_jobs))
    assert place["answers"] == ["EPERM"] * len(make_gpus(confined_jobs.cluster))


@pytest.mark.parametrize(
    "steps",
    [
        "srun -n1 --exact --mem=50 --gres=gpu:1 sh look.sh & srun -n1 --exact --mem=50 --gres=gpu:1 sh look.sh & wait",
        "srun -n2 --mem=100 --gpus-per-task=1 sh look.sh",
        "srun -n2 --mem=100 --gpu-bind=single:1 sh look.sh",
    ],
    ids=["steps", "tasks", "bound"],
)
def test_a_step_with_one_gpu_of_two_is_informed_slurms_own_index(confined_jobs: Jobs, steps: str) -> None:
    """Slurm counts the devices that the step can reach, as CUDA does: the first one, whichever that is."""
    (confined_jobs.folder / "look.py").write_text(LOOK)
    devices = confined_jobs.cluster.place.root / "dev" / node_of(confined_jobs.cluster)
    look_sh = f"python3 look.py '{devices}' > step.$SLURM_STEP_ID.$SLURM_PROCID.txt\n"
    (confined_jobs.folder / "look.sh").write_text(look_sh)
    job = confined_jobs.accepted("-n2", "--gres=gpu:2", "--wrap", steps)
    done = confined_jobs.wait(job, timeout_s=60)
    assert done["JobState"] == "COMPLETED", confined_jobs.output(job)
    rows = [path.read_text().split() for path in confined_jobs.folder.glob("step.*.txt")]
    answers = [tuple(row[row.index("answers") + 1 :]) for row in rows]
    assert [row[row.index("visible") + 1] for row in rows] == ["0", "0"]
    assert [one.count("ENXIO") for one in answers] == [1, 1]
    assert answers[0] != answers[1]


def test_where_slurms_gpu_is_full_the_job_waits_for_it(confined_jobs: Jobs) -> None:
    cluster = confined_jobs.cluster
    gpu_index = seen(confined_jobs, look(confined_jobs, *SHARED))["gpu_indices"][0]
    uuid = make_gpus(cluster)[int(gpu_index)].uuid
    with unmanaged(cluster, node_of(cluster), uuid, 35 * GIB, smact=0.5):
        job = look(confined_jobs, *SHARED)
        cluster.wait("it is requeued", lambda: confined_jobs.restarts(job) == 1, 30)
        assert confined_jobs.output(job) == ""
    place = seen(confined_jobs, job, timeout_s=90)
    assert place == expected(cluster, place["gpu_indices"])


def test_where_nothing_is_confined_the_job_is_placed_elsewhere(jobs: Jobs) -> None:
    """The other half of `pin = auto`: the same process on Slurm's index, and the job starts at once on another GPU."""
    cluster = jobs.cluster
    gpu_index = seen(jobs, look(jobs, *SHARED))["gpu_indices"][0]
    uuid = make_gpus(cluster)[int(gpu_index)].uuid
    with unmanaged(cluster, node_of(cluster), uuid, 35 * GIB, smact=0.5):
        job = look(jobs, *SHARED)
        place = seen(jobs, job)
        assert place["gpu_indices"] == [gpu_index]
        assert place["gpus"] != expected(cluster, [gpu_index])["gpus"]
        assert jobs.fields(job)["Restarts"] == "0"


def test_whole_and_shared_jobs_never_meet(confined_jobs: Jobs) -> None:
    """Slurm 22.05 itself gives GPUs with shards in use away as a whole: there our Prolog puts the second job back."""
    order = [SHARED, SHARED, ("--gres=gpu:2",), SHARED, ("--gres=gpu:3",), SHARED, ("--gpus=1",)]
    ids = [confined_jobs.accepted(*argv, "--wrap", train("9G", 3)) for argv in order]
    gpus = {ids[2]: 2, ids[4]: 3}
    watcher = follow(confined_jobs, ids, gpus=gpus, timeout_s=200)
    for job, argv in zip(ids, order, strict=True):
        runs = [run for run in watcher.of(job) if run.gpus]
        assert runs, job
        if argv is not SHARED:
            assert not any(run.neighbours for run in runs)
    version = parse_version(confined_jobs.cluster.slurm("scontrol", "--version"))
    if not traits(version).keeps_gpu_and_shard_apart:
        restarts = [confined_jobs.fields(job)["Restarts"] for job in ids]
        assert any(count != "0" for count in restarts), "Slurm never tried: this test saw nothing"
