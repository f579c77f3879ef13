"""One MPS server for all jobs on a GPU: two users' jobs on it, and an access list that follows them."""

from __future__ import annotations

import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mps_setup import admitted

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from lab.simulated_mps import end_server
from lab.watch import job_of
from slurm_plugin.core.placement.server_keys import server_key
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.mps.quarantine import faults_of
from slurm_plugin.slurm.commands import SlurmCommands
from tests.cluster.conftest import jobs_on, started

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.any_slurm("MPS servers of a node; accounts are asked for in test_limits"),
]

NODE = NodeSpec(name="n0", gpu_mib=(40960,))
FIRST, SECOND, OTHER_USER = "nobody", "games", "daemon"


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    spec = ClusterSpec(nodes=(NODE,), rad_toml=('mps_server = "gpu"',))
    yield from started(place, spec, name="server")


def starts(jobs: Jobs, user: str, words: str = "", *argv: str) -> tuple[int, Path]:
    """Return a job that runs, and its pipe directory."""
    show = 'test -e "$CUDA_MPS_PIPE_DIRECTORY/control" && echo "$CUDA_MPS_PIPE_DIRECTORY"'
    train = f"{show}; exec python3 fake_train.py --memory 5G --seconds 600"
    job = jobs.accepted("--gpus=1", f"--comment=rad:memory=6G{words}", *argv, "--wrap", train, user=user)
    number = job
    jobs.cluster.wait(f"job {number} reaches its server", lambda: jobs.output(number).count("\n") > 0, 30)
    return number, Path(jobs.output(number).splitlines()[0])


def ids(*names: str) -> set[int]:
    return {pwd.getpwnam(name).pw_uid for name in names}


def reaches(user: str, pipe: Path) -> bool:
    return (
        subprocess.run(["runuser", "-u", user, "--", "test", "-e", pipe / "control"], check=False).returncode
        == 0
    )


def faults(cluster: Cluster, job: int, *, restart: int) -> int:
    """Let a run of a job fault once it is sampled; return how many processes ended."""
    gpus, folder = cluster.place.gpus("n0"), cluster.place.run / "n0"

    def pids() -> list[int]:
        processes = SimulatedGpus(gpus).read()[0].processes
        return [one.pid for one in processes if job_of(one.pid) == (job, restart)]

    cluster.wait("it holds memory", lambda: bool(pids()), 30)
    window = folder / "monitor" / "window.json"
    before = window.stat().st_mtime_ns
    cluster.wait("a sample", lambda: window.stat().st_mtime_ns > before + 1_500_000_000, 10)
    return len(end_server(folder, gpus, pids()[0]))


def test_two_users_share_a_server_until_one_has_no_job_there(jobs: Jobs, cluster: Cluster) -> None:
    first, pipe = starts(jobs, FIRST)
    assert admitted(pipe) == ids(FIRST)
    second, other = starts(jobs, SECOND)
    assert (other, pipe.parent.name) == (pipe, "all")
    assert admitted(pipe) == ids(FIRST, SECOND)
    assert [reaches(user, pipe) for user in (FIRST, SECOND, OTHER_USER)] == [True, True, False]

    cluster.slurm("scancel", str(first))
    cluster.wait("the list loses the user", lambda: admitted(pipe) == ids(SECOND), 30)
    assert [reaches(user, pipe) for user in (FIRST, SECOND)] == [False, True]
    assert jobs.state(second) == "RUNNING"

    cluster.slurm("scancel", str(second))
    cluster.wait("the server is gone", lambda: not pipe.exists(), 30)


def test_after_a_fault_each_job_runs_again_alone_and_the_one_at_fault_ends(
    jobs: Jobs, cluster: Cluster
) -> None:
    culprit, pipe = starts(jobs, FIRST)
    victim, _ = starts(jobs, SECOND)
    assert faults(cluster, culprit, restart=0) == 2
    for job in (culprit, victim):
        cluster.wait("it runs again", lambda job=job: jobs.restarts(job) == 1, 30)  # type: ignore[misc]
        found = jobs.wait(job, "RUNNING", timeout_s=60)
        assert "failed with its MPS server, requeued for a server of its own" in found["AdminComment"]
        cluster.wait("it has one", lambda job=job: (pipe.parents[1] / f"j{job}").is_dir(), 30)  # type: ignore[misc]

    apart, own_pipe = starts(jobs, SECOND)
    assert own_pipe.parents[1] == pipe.parents[1]
    assert own_pipe.parent.name == str(pwd.getpwnam(SECOND).pw_uid)
    shown = "a GPU fault ended the one that its user's job shared"
    cluster.wait("it is said", lambda: shown in jobs.fields(apart).get("AdminComment", ""), 20)

    assert faults(cluster, culprit, restart=1) == 1
    cluster.wait("the job at fault ended", lambda: jobs.state(culprit) == "FAILED", 30)
    assert jobs.state(victim) == "RUNNING" and jobs.restarts(culprit) == 1
    folder = cluster.place.run / "n0"
    certain = {
        user: [one.job_id for one in faults_of(folder, user) if one.certain] for user in ids(FIRST, SECOND)
    }
    assert certain == {pwd.getpwnam(FIRST).pw_uid: [culprit], pwd.getpwnam(SECOND).pw_uid: []}
    for file in (folder / "mps-faults").glob("*.json"):
        file.unlink()


def test_a_job_that_wants_a_server_of_its_own_has_one(jobs: Jobs) -> None:
    _, shared = starts(jobs, FIRST)
    job, pipe = starts(jobs, FIRST, ",mps_server=own")
    assert (shared.parent.name, pipe.parent.name) == ("all", f"j{job}")
    assert shared.parent.parent == pipe.parent.parent, "on the same GPU"


def test_slurm_says_which_account_a_job_has(jobs: Jobs, cluster: Cluster) -> None:
    slurm = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)
    for words, expected in ((("--account=lab",), "lab"), ((), "")):
        job = jobs.accepted("--hold", "--gpus=1", *words, "--wrap", "true")
        assert slurm.account(job) == expected


@pytest.fixture(scope="module")
def with_accounts(place: Place) -> Iterator[Cluster]:
    spec = ClusterSpec(
        nodes=(NODE,),
        accounts=True,
        slurm_conf=("AccountingStorageEnforce=associations",),
        rad_toml=('mps_server = "account"',),
    )
    yield from started(place, spec, name="account")


@pytest.fixture
def kept(with_accounts: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(with_accounts, request)


def test_users_of_one_account_share_a_server(kept: Jobs) -> None:
    _, one = starts(kept, "root", "", "--account=lab")
    _, two = starts(kept, SECOND)
    key = server_key("account", user_id=0, account="lab", job_id=0)
    assert (one, one.parent.name) == (two, key)
    assert admitted(one) == ids("root", SECOND)
    _, apart = starts(kept, "root")
    assert apart.parent.parent == one.parent.parent and apart != one, "his default account is another"
    other = kept.submit("--gpus=1", "--account=other", "--wrap", "true", user=SECOND)
    assert other.job_id is None and "account" in other.messages, "Slurm takes no account that is not his"
