"""slurmctld dies and comes back with an older state, so that it gives ids again which the node knows as other jobs."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.site import allocations_of, jobs_of, trial_cluster

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.load import equal_nodes
from slurm_plugin.slurm.node.processes import living_jobs

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from trial_cluster("reused")


def keep_state(cluster: Cluster) -> None:
    """Copy the state that slurmctld has saved."""
    cluster.daemons.stop("slurmctld")
    subprocess.run(["cp", "-a", *map(str, states(cluster))], check=True)
    start_slurmctld(cluster)


def states(cluster: Cluster) -> tuple[Path, Path]:
    """Return the folders of slurmctld's state and of its copy."""
    spool = cluster.place.root / "spool" / "slurmctld"
    return spool, spool.with_name("older")


def bring_back_state(cluster: Cluster) -> None:
    spool, older = states(cluster)
    shutil.rmtree(spool)
    older.rename(spool)


def start_slurmctld(cluster: Cluster) -> None:
    cluster.start_slurmctld()
    cluster.wait("slurmctld answers", cluster.answers, 60)
    cluster.reset_breaker()


def submit(jobs: Jobs, gib: int, *argv: str, user: str) -> int:
    return jobs.accepted("--gpus=1", f"--comment=rad:memory={gib}G", "--open-mode=append", *argv, user=user)


def release_after_earlier_runs(cluster: Cluster, *held_jobs: int) -> None:
    """Release held jobs two seconds after the last earlier run has ended.

    slurmd 24.11 refuses a job whose credential is not of a later second than the end of the earlier run of that id:
    Slurm alone fails such a job, before any Prolog (docs/measurements/2026-11-attacks.md).
    """
    slurm_conf = str(cluster.place.slurm_conf)
    cluster.wait("the earlier runs end", lambda: not living_jobs(slurm_conf=slurm_conf), 60)
    ended_s = int(cluster.clock.now_s())
    cluster.wait("a later second", lambda: int(cluster.clock.now_s()) > ended_s + 1, 5)
    cluster.slurm("scontrol", "release", ",".join(map(str, held_jobs)))


BEATS = "for n in $(seq 200); do echo $n > beat; sleep 0.1; done"
ALONE = "a=$(cat beat); sleep 1; test $a = $(cat beat) && echo alone"


@pytest.mark.parametrize(
    ("owner", "gib"),
    [("nobody", 8), ("games", 8), ("nobody", 4)],
    ids=["of one owner", "of two", "of one owner and size"],
)
def test_a_job_under_an_id_that_slurm_gave_before_runs_with_its_own_booking(
    cluster: Cluster, owner: str, gib: int
) -> None:
    """With the same owner and size it may have the earlier run's allocation, which is what it booked."""
    jobs = jobs_of(cluster)
    keep_state(cluster)
    first = submit(jobs, 4, "--wrap", BEATS, user="nobody")
    cluster.wait(
        "the first runs", lambda: jobs.state(first) == "RUNNING" and bool(allocations_of(cluster, first)), 40
    )
    cluster.daemons.signal("slurmctld", signal.SIGKILL)
    cluster.wait("slurmctld is gone", lambda: not cluster.answers(), 20)
    bring_back_state(cluster)
    start_slurmctld(cluster)
    output = jobs.folder / f"second-{owner}-{gib}.out"
    shows = f"echo gpus=$RAD_GPUS shards=$RAD_SHARDS.; {ALONE}"
    second = submit(jobs, gib, "--hold", f"--output={output}", "--wrap", shows, user=owner)
    assert second == first, "this slurmctld gave another id: nothing was tried"
    release_after_earlier_runs(cluster, second)
    ended = jobs.wait(second, timeout_s=150)
    text = output.read_text() if output.exists() else "no output"
    assert ended["JobState"] == "COMPLETED", (text, ended)
    assert "gpus=GPU-" in text, f"nothing was reserved for it: {text}"
    # Of a radd that was too late for the shim nothing is booked, and the Prolog queries Slurm.
    assert f"shards={gib}." in text or "shards=." in text, (
        f"it has what the first job of that id booked: {text}"
    )
    assert "alone" in text, f"the first run went on next to it: {text}"
    cluster.wait("nothing is reserved", lambda: not cluster.allocations("n0"), 120)


DAEMONS = ("slurmctld", "slurmd-n0", "radd", "monitor-n0")


def start_all(cluster: Cluster) -> None:
    (node,) = equal_nodes(1)
    cluster.start_radd()
    cluster.start_slurmctld()
    cluster.start_node(node)
    cluster.start_monitor(node)
    cluster.wait("slurmctld answers", cluster.answers, 60)
    cluster.reset_breaker()


def test_no_job_fails_where_all_daemons_die_at_once_and_ids_are_given_again(cluster: Cluster) -> None:
    jobs = jobs_of(cluster)
    keep_state(cluster)
    before = [
        submit(jobs, gib, "--wrap", "sleep 15", user=user)
        for gib, user in (
            (4, "nobody"),
            (2, "games"),
            (8, "nobody"),
            (4, "games"),
            (2, "nobody"),
            (8, "games"),
        )
    ]
    cluster.wait("some run", lambda: sum(jobs.state(job) == "RUNNING" for job in before) > 2, 60)
    for name in DAEMONS:
        cluster.daemons.signal(name, signal.SIGKILL)
    for name in DAEMONS:
        cluster.daemons.kill(name)  # waits
    bring_back_state(cluster)
    start_all(cluster)
    wrap = ("--wrap", "echo gpus=$RAD_GPUS shards=$RAD_SHARDS.; sleep 2")
    after: dict[int, tuple[int, Path]] = {}
    for gib, user in ((2, "nobody"), (8, "nobody"), (4, "games"), (2, "games"), (8, "games"), (4, "nobody")):
        output = jobs.folder / f"again-{len(after)}.out"
        after[submit(jobs, gib, "--hold", f"--output={output}", *wrap, user=user)] = (gib, output)
    assert set(after) & set(before), "this slurmctld gave other ids: nothing was tried"
    release_after_earlier_runs(cluster, *after)
    for job, (gib, output) in after.items():
        ended = jobs.wait(job, timeout_s=240)
        text = output.read_text()
        assert ended["JobState"] == "COMPLETED", text
        assert "gpus=GPU-" in text, f"nothing was reserved for it: {text}"
        assert f"shards={gib}." in text or "shards=." in text, f"it has another job's booking: {text}"
    cluster.wait("nothing is reserved", lambda: not cluster.allocations("n0"), 120)
