"""A job with shards gets the CPUs and the memory that slurm.conf gives for each GPU, as one with a GPU does."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from lab.cluster import Cluster
from lab.daemons import LabError
from lab.jobs import Jobs
from lab.place import ClusterSpec, Place
from slurm_plugin.core.errors import CommandError
from tests.cluster.conftest import started

pytestmark = pytest.mark.cluster

REQUESTS = (
    *(
        "--gpus=1",
        "--gres=gpu:1",
        "--gpus-per-node=1",
        "-n1 --gpus-per-task=1",
        "--gpus=1 -n2",
        "--gpus=1 -n8",
    ),
    *("--gpus=1 -c1", "--gpus=1 -c6", "--gpus=1 --mem=500", "--gpus=1 --mem-per-cpu=300", "--gpus=1 --mem=0"),
    *("--gpus=1 --cpus-per-gpu=2", "--gpus=1 --mem-per-gpu=700", "--gpus=2", "--gres=shard:3", "-n1"),
    *("--gres=gpu:1 -n8 --overcommit", "--gpus=1 --mincpus=6", "--gpus=1 --cpus-per-gpu=4 -n2"),
)
CHANGES = ("NumTasks=16", "NumCPUs=6", "MinCPUsNode=6", "CpusPerTres=gres:gpu:2", "MinMemoryNode=500")

COUNTS = (r"NumCPUs=(\d+)", r"\b(?:Alloc)?TRES=\S*mem=(\w+)", r"Step=(\d+)", r"Layout=(\S*)")
AT_ONCE = 4
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def defaults(place: Place) -> Iterator[Cluster]:
    """The partition `plain` of this cluster has the same defaults, and RAD does not manage it."""
    yield from started(
        place, ClusterSpec(slurm_conf=("DefCpuPerGPU=4", "DefMemPerGPU=3000")), name="defaults"
    )


def given(cluster: Cluster, command: str, partition: str, request: str) -> tuple[str, ...]:
    """Return the CPUs, the memory and the tasks of a job, and the CPUs of its step; or why Slurm refuses it.

    Without CPUs per task for srun, which states one task: RAD then requests the CPUs by task.
    """
    layout = "Layout=$SLURM_TASKS_PER_NODE/" + "$SLURM_CPUS_PER_TASK" * (command == "sbatch")
    shows = f"scontrol show job $SLURM_JOB_ID; echo Step=$SLURM_CPUS_ON_NODE; echo {layout}"
    words = [f"--partition={partition}", *shlex.split(request)]
    out = cluster.place.root / "work" / f"out-{next(_NUMBERS)}"
    out.parent.mkdir(exist_ok=True)
    out.parent.chmod(0o1777)
    batch = command == "sbatch"
    words += ["--parsable", "--wrap", f"srun sh -c {shlex.quote(shows)}"] if batch else ["sh", "-c", shows]
    try:
        job = cluster.slurm(command, f"--output={out}", *words, user="nobody", timeout_s=60)
    except CommandError as exc:
        return (str(exc).rpartition("error: ")[2],)
    if batch:
        Jobs(cluster, out.parent).wait(job.split()[-1], timeout_s=60)
    counts = [re.search(pattern, out.read_text()) for pattern in COUNTS]
    return tuple(match[1] for match in counts if match)


@pytest.mark.parametrize("command", ["sbatch", "srun"])
def test_shards_come_with_what_a_gpu_comes_with(defaults: Cluster, command: str) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        alone = list(pool.map(lambda each: given(defaults, command, "plain", each), REQUESTS))
        found = list(pool.map(lambda each: given(defaults, command, "gpu", each), REQUESTS))
    assert sum(len(each) == len(COUNTS) for each in alone) >= len(REQUESTS) - 2, "24.11 refuses -n8"
    assert dict(zip(REQUESTS, found, strict=True)) == dict(zip(REQUESTS, alone, strict=True))


def test_a_shared_job_has_it_too(defaults: Cluster) -> None:
    alone = given(defaults, "sbatch", "plain", "--gpus=1")
    assert given(defaults, "sbatch", "gpu", "--gpus=1 --comment=rad:memory=5G") == alone


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("gpu", ["--gpus=1", "--gres=gpu:1"])
def test_a_change_of_cpus_or_memory_has_the_effect_that_it_has_without_rad(
    defaults: Cluster, gpu: str, change: str
) -> None:
    def changed(partition: str) -> dict[str, str]:
        words = ("--parsable", "--hold", f"--partition={partition}", "--output=/dev/null", "--wrap=true")
        job = defaults.slurm("sbatch", gpu, *words, user="nobody").split()[-1]
        defaults.slurm("scontrol", "update", f"JobId={job}", change, user="nobody")
        defaults.slurm("scontrol", "release", job)
        jobs = Jobs(defaults, defaults.place.root)
        with suppress(LabError):  # on 24.11 some never start, with RAD or without
            jobs.wait(int(job), timeout_s=10)
        row = jobs.fields(int(job))
        defaults.slurm("scancel", job)
        return {name: row[name] for name in ("JobState", "NumCPUs", "NumNodes")}

    with ThreadPoolExecutor(2) as pool:
        alone, found = pool.map(changed, ("plain", "gpu"))
    assert found == alone


def inner_output(cluster: Cluster, command: str, stated: str) -> str:
    """Return what a job prints that a job submits: whether its step ran, and SLURM_MEM_PER_NODE."""
    folder = cluster.place.root / "work" / f"inner-{next(_NUMBERS)}"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    runs = f"srun echo ran; echo $SLURM_MEM_PER_NODE; touch {folder}/ended"
    inner = f"sbatch --output={folder}/inner {stated} --wrap '{runs}'"
    words = (f"--output={folder}/out", "--wrap", inner) if command == "sbatch" else ("sh", "-c", inner)
    cluster.slurm(command, "--gres=gpu:1", *words, user="nobody", timeout_s=60)
    cluster.wait("the job that it submits ends", (folder / "ended").exists, 60)
    return (folder / "inner").read_text()


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
@pytest.mark.parametrize("stated", ["", "--mem-per-cpu=50", "--mem=200"])
def test_a_job_that_it_submits_inherits_no_memory(defaults: Cluster, command: str, stated: str) -> None:
    """An srun refuses SLURM_MEM_PER_NODE, as of the shards, next to the SLURM_MEM_PER_CPU of its own job."""
    assert inner_output(defaults, command, stated) == f"ran\n{'200' if stated == '--mem=200' else ''}\n"


def test_a_job_from_a_node_without_lua_posix_keeps_its_own_memory(defaults: Cluster) -> None:
    settings = defaults.place.etc / "rad/rad_settings.lua"
    before = settings.read_text()
    hidden = 'package.preload["posix.stdlib"] = function() error("hidden") end'
    settings.write_text(f'if os.getenv("SLURM_TASK_PID") then {hidden} end\n{before}')
    try:
        assert inner_output(defaults, "srun", "--mem=200") == "ran\n200\n"
    finally:
        settings.write_text(before)


def test_it_holds_while_radd_is_away(defaults: Cluster) -> None:
    alone = given(defaults, "sbatch", "plain", "--gpus=1")
    defaults.daemons.stop("radd")
    try:
        assert given(defaults, "sbatch", "gpu", "--gpus=1") == alone
    finally:
        defaults.restart_radd()
