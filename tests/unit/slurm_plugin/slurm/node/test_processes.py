from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fake_proc import process, slurmstepd

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.process.identity import LONGEST
from slurm_plugin.slurm.node.daemons import Belonging
from slurm_plugin.slurm.node.processes import (
    claimed_gpus,
    living_jobs,
    owners_of,
    processes_of,
    slurmd_since_s,
)

USER, OTHER = [1000] * 4, [1001] * 4


def certain(job_id: int) -> Belonging:
    return Belonging(job_id=job_id, certain=True)


def said(job_id: int) -> Belonging:
    return Belonging(job_id=job_id, certain=False)


def test_a_job_lives_while_it_has_a_step(tmp_path: Path) -> None:
    slurmstepd(tmp_path, 10, "5.batch", title="slurmstepd: [5.batch]\0\0", environment={"SLURM_CONF": "/a"})
    slurmstepd(tmp_path, 11, "6.extern", environment={"SLURM_CONF": "/b"})
    slurmstepd(tmp_path, 12, "7.0")
    process(tmp_path, 13, title="slurmstepd: [8.batch]")
    (tmp_path / "self").mkdir()
    assert living_jobs(proc=tmp_path) == {5, 6, 7}
    assert living_jobs(slurm_conf="/a", proc=tmp_path) == {5, 7}


def test_a_word_of_the_environment_is_not_certain(tmp_path: Path) -> None:
    process(tmp_path, 3, users=USER, environment={"SLURM_JOB_ID": "43"})
    process(tmp_path, 4, users=USER)
    assert owners_of([3, 4, 5], proc=tmp_path) == {3: said(43)}


@pytest.mark.parametrize("word", ["9" * 5000, "12345678901", "\u0663", "", "4 3", "-4"])
def test_a_word_that_is_no_job_id_names_no_job(tmp_path: Path, word: str) -> None:
    """rad-monitor reads it from each process on a GPU: no user may stop it by what is written there."""
    process(tmp_path, 3, users=USER, environment={"SLURM_JOB_ID": word})
    slurmstepd(tmp_path, 4, f"{word}.batch")
    assert owners_of([3, 4], proc=tmp_path) == {}
    assert processes_of(43, 1000, proc=tmp_path) == () and living_jobs(proc=tmp_path) == frozenset()


def test_a_job_id_that_is_cut_names_no_job(tmp_path: Path) -> None:
    begins = {"A": "x" * (LONGEST - len("A=\0SLURM_JOB_ID=43"))}
    process(tmp_path, 3, users=USER, environment={**begins, "SLURM_JOB_ID": "4321"})
    process(tmp_path, 4, users=USER, environment={**begins, "SLURM_JOB_ID": "4"})
    assert owners_of([3, 4], proc=tmp_path) == {4: said(4)}


def test_an_environment_that_is_never_given_keeps_no_job_waiting(tmp_path: Path) -> None:
    """As of a process inside mmap(2) of a file that its user's file server never writes (seen on Linux 6.18)."""
    slurmstepd(tmp_path, 10, "41.batch")
    process(tmp_path, 11, parent=10, users=USER, environment={"CUDA_VISIBLE_DEVICES": "GPU-a"})
    slurmstepd(tmp_path, 20, "42.batch")
    for pid, parent in ((21, 20), (31, 1)):
        environ = process(tmp_path, pid, parent=parent, users=USER) / "environ"
        environ.unlink()
        os.mkfifo(environ)
    assert owners_of([11, 21, 31], proc=tmp_path) == {11: certain(41), 21: certain(42)}
    assert {one.pid for one in processes_of(42, 1000, proc=tmp_path)} == {21}
    assert claimed_gpus([41, 42], proc=tmp_path) == {41: ("GPU-a",)}


def test_no_proc_is_no_jobs(tmp_path: Path) -> None:
    assert living_jobs(proc=tmp_path / "none") == frozenset()


def test_a_job_that_clears_its_environment_is_known_by_its_parents(tmp_path: Path) -> None:
    slurmstepd(tmp_path, 10, "41.batch")
    process(tmp_path, 11, parent=10, users=USER)
    process(tmp_path, 12, parent=11, users=USER)
    process(tmp_path, 13, parent=11, users=USER, environment={"SLURM_JOB_ID": "99"})
    assert owners_of([11, 12, 13], proc=tmp_path) == dict.fromkeys((11, 12, 13), certain(41))
    assert {one.pid for one in processes_of(41, 1000, proc=tmp_path)} == {11, 12, 13}
    assert processes_of(41, 1001, proc=tmp_path) == ()


def test_an_orphan_is_known_by_the_session_of_its_slurmstepd(tmp_path: Path) -> None:
    slurmstepd(tmp_path, 10, "41.batch", session=9)
    slurmstepd(tmp_path, 20, "42.batch", session=19)
    process(tmp_path, 11, session=9, users=USER)
    process(tmp_path, 12, session=12, users=USER)
    assert owners_of([11, 12], proc=tmp_path) == {11: certain(41)}


def test_a_session_that_others_are_in_proves_nothing(tmp_path: Path) -> None:
    process(tmp_path, 5, session=5, title="slurmd", program="slurmd")
    slurmstepd(tmp_path, 10, "41.batch", session=5)
    slurmstepd(tmp_path, 20, "42.batch", session=19)
    slurmstepd(tmp_path, 21, "43.batch", session=19)
    process(tmp_path, 11, session=5, users=USER)
    process(tmp_path, 12, session=19, users=USER)
    assert owners_of([11, 12], proc=tmp_path) == {}


def test_tasks_claim_gpus_for_their_own_job_alone(tmp_path: Path) -> None:
    slurmstepd(tmp_path, 10, "5.batch")
    slurmstepd(tmp_path, 20, "6.batch")
    process(tmp_path, 11, parent=10, environment={"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})
    process(tmp_path, 21, parent=20, environment={"CUDA_VISIBLE_DEVICES": "0"})
    lie = {"SLURM_JOB_ID": "6", "CUDA_VISIBLE_DEVICES": "GPU-c"}
    process(tmp_path, 31, environment=lie)  # of no job
    process(tmp_path, 12, parent=10, environment=lie)  # says that it is another's
    assert claimed_gpus([6], proc=tmp_path) == {}
    assert claimed_gpus([5, 6], proc=tmp_path)[5][0] in ("GPU-a", "GPU-c")


def test_parents_in_a_circle_end(tmp_path: Path) -> None:
    process(tmp_path, 11, parent=12)
    process(tmp_path, 12, parent=11)
    assert owners_of([11], proc=tmp_path) == {}


def test_the_age_of_this_nodes_slurmd_is_that_of_the_daemon(tmp_path: Path) -> None:
    """Other nodes' daemons on one host, another cluster's, a fork of the daemon's own and a user's do not count."""

    def slurmd(
        pid: int, *words: str, ticks: int, conf: str = "", program: str = "slurmd-wlm", **more: object
    ) -> None:
        title = "\0".join(("slurmd", *words, ""))
        environment = {"SLURM_CONF": conf} if conf else {}
        process(tmp_path, pid, title=title, program=program, ticks=ticks, environment=environment, **more)  # type: ignore[arg-type]

    slurmd(1, "-D", "-f", "/a/slurm.conf", "-N", "n0", ticks=500)
    slurmd(2, "-D", "-f", "/a/slurm.conf", "-N", "n0", ticks=900)
    slurmd(3, "-D", "-f", "/a/slurm.conf", "-Nn1", ticks=100)
    slurmd(4, "-D", "-N", "n0", ticks=200, conf="/b/slurm.conf")
    slurmd(5, "-D", "-N", "n0", ticks=50, program="newgrp", users=(1000, 0, 0, 0))
    slurmd(6, "-D", "-N", "n0", ticks=60, program="passwd")
    since_s = slurmd_since_s("n0", slurm_conf="/a/slurm.conf", proc=tmp_path)
    suspended_s = time.clock_gettime(time.CLOCK_BOOTTIME) - SystemClock().monotonic_s()
    assert since_s == pytest.approx(500 / os.sysconf("SC_CLK_TCK") - suspended_s, abs=0.1)
    assert slurmd_since_s("n9", slurm_conf="/a/slurm.conf", proc=tmp_path) is None
