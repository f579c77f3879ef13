from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.slurm.processes import claimed_gpus, living_jobs, owners_of, processes_of, slurmd_since_s


def process(
    proc: Path, pid: int, *, comm: str = "python", title: str = "", cgroup: str = "", **env: str
) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "cmdline").write_text(title)
    (folder / "cgroup").write_text(cgroup)
    (folder / "environ").write_text("\0".join(f"{name}={value}" for name, value in env.items()))


def test_a_job_lives_while_it_has_a_step(tmp_path: Path) -> None:
    process(tmp_path, 10, comm="slurmstepd", title="slurmstepd: [5.batch]\0\0", SLURM_CONF="/a/slurm.conf")
    process(tmp_path, 11, comm="slurmstepd", title="slurmstepd: [6.extern]", SLURM_CONF="/b/slurm.conf")
    process(tmp_path, 12, comm="slurmstepd", title="slurmstepd: [7.0]")
    process(tmp_path, 13, comm="python", title="slurmstepd: [8.batch]")
    (tmp_path / "self").mkdir()
    assert living_jobs(proc=tmp_path) == {5, 6, 7}
    assert living_jobs(slurm_conf="/a/slurm.conf", proc=tmp_path) == {5, 7}


def test_a_process_belongs_to_the_job_of_its_cgroup_before_that_of_its_environment(tmp_path: Path) -> None:
    process(
        tmp_path, 1, cgroup="0::/system.slice/slurmstepd.scope/job_41/step_0/user/task_0\n", SLURM_JOB_ID="9"
    )
    process(tmp_path, 2, cgroup="4:memory:/slurm/uid_1000/job_42/step_batch\n")
    process(tmp_path, 3, cgroup="0::/\n", SLURM_JOB_ID="43")
    process(tmp_path, 4, cgroup="0::/\n")
    found = owners_of([1, 2, 3, 4, 5], proc=tmp_path)
    assert {pid: one.job_id for pid, one in found.items()} == {1: 41, 2: 42, 3: 43}
    assert [found[pid].certain for pid in (1, 2, 3)] == [True, True, False]


def test_no_proc_is_no_jobs(tmp_path: Path) -> None:
    assert living_jobs(proc=tmp_path / "none") == frozenset()


def child_of(proc: Path, pid: int, parent: int, **env: str) -> None:
    process(proc, pid, **env)
    (proc / str(pid) / "stat").write_text(f"{pid} (py) thon) S {parent} " + " ".join(["0"] * 17) + " 7")


def test_a_job_that_clears_its_environment_is_known_by_its_parents(tmp_path: Path) -> None:
    process(tmp_path, 10, comm="slurmstepd", title="slurmstepd: [41.batch]")
    child_of(tmp_path, 11, 10)
    child_of(tmp_path, 12, 11)
    child_of(tmp_path, 13, 11, SLURM_JOB_ID="99")
    found = owners_of([11, 12, 13], proc=tmp_path)
    assert {pid: (one.job_id, one.certain) for pid, one in found.items()} == dict.fromkeys(
        (11, 12, 13), (41, True)
    )
    assert {one.pid for one in processes_of(41, os.geteuid(), proc=tmp_path)} == {11, 12, 13}
    assert processes_of(41, os.geteuid() + 1, proc=tmp_path) == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_program_that_calls_itself_slurmstepd_has_no_jobs(tmp_path: Path) -> None:
    process(tmp_path, 10, comm="slurmstepd", title="slurmstepd: [41.batch]")
    os.chown(tmp_path / "10", 4711, 4711)
    child_of(tmp_path, 11, 10)
    assert owners_of([11], proc=tmp_path) == {}
    assert living_jobs(proc=tmp_path) == frozenset(), "nor does it keep a dead job's GPU"


def test_tasks_claim_gpus_for_their_own_job_alone(tmp_path: Path) -> None:
    process(tmp_path, 10, comm="slurmstepd", title="slurmstepd: [5.batch]")
    process(tmp_path, 20, comm="slurmstepd", title="slurmstepd: [6.batch]")
    child_of(tmp_path, 11, 10, CUDA_VISIBLE_DEVICES="GPU-a,GPU-b")
    child_of(tmp_path, 21, 20, CUDA_VISIBLE_DEVICES="0")
    process(tmp_path, 31, SLURM_JOB_ID="6", CUDA_VISIBLE_DEVICES="GPU-c", cgroup="0::/\n")  # of no job
    child_of(tmp_path, 12, 10, SLURM_JOB_ID="6", CUDA_VISIBLE_DEVICES="GPU-c")  # says that it is another's
    assert claimed_gpus([6], proc=tmp_path) == {}
    assert claimed_gpus([5, 6], proc=tmp_path)[5][0] in ("GPU-a", "GPU-c")


def test_parents_in_a_circle_end(tmp_path: Path) -> None:
    child_of(tmp_path, 11, 12)
    child_of(tmp_path, 12, 11)
    assert owners_of([11], proc=tmp_path) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="a slurmd is root's")
def test_the_age_of_this_nodes_slurmd_is_that_of_the_daemon(tmp_path: Path) -> None:
    """Other nodes' daemons on one host, another cluster's and a fork of the daemon's own do not count."""

    def slurmd(pid: int, *words: str, ticks: int, **env: str) -> None:
        process(tmp_path, pid, comm="slurmd", title="\0".join(("slurmd", *words, "")), **env)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (slurmd) S 1 " + "0 " * 17 + f"{ticks} 0")

    slurmd(1, "-D", "-f", "/a/slurm.conf", "-N", "n0", ticks=500)
    slurmd(2, "-D", "-f", "/a/slurm.conf", "-N", "n0", ticks=900)
    slurmd(3, "-D", "-f", "/a/slurm.conf", "-Nn1", ticks=100)
    slurmd(4, "-D", "-N", "n0", ticks=200, SLURM_CONF="/b/slurm.conf")
    since_s = slurmd_since_s("n0", slurm_conf="/a/slurm.conf", proc=tmp_path)
    suspended_s = time.clock_gettime(time.CLOCK_BOOTTIME) - SystemClock().monotonic_s()
    assert since_s == pytest.approx(500 / os.sysconf("SC_CLK_TCK") - suspended_s, abs=0.1)
    assert slurmd_since_s("n9", slurm_conf="/a/slurm.conf", proc=tmp_path) is None
