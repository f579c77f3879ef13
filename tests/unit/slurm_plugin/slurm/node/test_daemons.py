"""What counts as a slurmstepd, and what only looks like one."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from fake_proc import SLURMSTEPD, installed, process, slurmstepd

from slurm_plugin.core.process.identity import LONGEST, ProcFolder, opened
from slurm_plugin.slurm.node.daemons import Belonging, job_of_step
from slurm_plugin.slurm.node.processes import claimed_gpus, living_jobs, owners_of, slurmd_since_s
from tests.timing import within

USER = (1000, 1000, 1000, 1000)
CHILD = 11


def child(proc: Path) -> Belonging | None:
    """Return whose the child of process 10 is, after having made it."""
    process(proc, CHILD, parent=10, users=USER)
    return owners_of([CHILD], proc=proc).get(CHILD)


@pytest.mark.parametrize("users", [(0, 0, 0, 0), (0, 1000, 0, 1000)], ids=["root", "while it opens files"])
def test_a_slurmstepd_is_certain(tmp_path: Path, users: tuple[int, ...]) -> None:
    slurmstepd(tmp_path, 10, "41.batch", users=users)
    assert child(tmp_path) == Belonging(job_id=41, certain=True)


@pytest.mark.parametrize("step", ["41.0", "41.extern", "41.interactive", "40+1.0", "41_3.batch"])
def test_the_job_is_the_titles(tmp_path: Path, step: str) -> None:
    slurmstepd(tmp_path, 10, step)
    assert child(tmp_path) == Belonging(job_id=41, certain=True)


@pytest.mark.parametrize(
    ("users", "program"),
    [
        ((1000, 0, 0, 0), "newgrp"),  # a setuid-root program under another name
        ((1000, 0, 0, 0), SLURMSTEPD),
        ((1000, 1000, 0, 1000), SLURMSTEPD),
        (USER, SLURMSTEPD),
        ((0, 0, 0, 0), "passwd"),  # it becomes root altogether before it writes
        ((0, 0, 0, 0), "notslurmstepd"),
        ((0, 0, 0, 0), "slurmstepd.sh"),
    ],
)
def test_what_only_looks_like_one_has_no_job(tmp_path: Path, users: tuple[int, ...], program: str) -> None:
    process(tmp_path, 10, title="slurmstepd: [41.batch]", users=users, program=program)
    assert child(tmp_path) is None
    assert living_jobs(proc=tmp_path) == frozenset(), "nor does it keep a dead job's GPU"


def test_a_setuid_program_by_a_hard_link_of_that_name_has_no_job(tmp_path: Path) -> None:
    installed(tmp_path, "slurmstepd", mode=0o4755)
    slurmstepd(tmp_path, 10, "41.batch", program="slurmstepd")
    assert child(tmp_path) is None


def test_a_program_of_another_file_system_view_keeps_a_gpu_and_judges_no_job(tmp_path: Path) -> None:
    """slurmd in a container, or a container whose root is the host's."""
    folder = slurmstepd(tmp_path, 10, "41.batch")
    (folder / "exe").unlink()
    (folder / "exe").symlink_to(f"/nowhere/{SLURMSTEPD}")
    assert living_jobs(proc=tmp_path) == {41}
    assert child(tmp_path) == Belonging(job_id=41, certain=False)


def test_a_parent_of_a_users_makes_it_uncertain(tmp_path: Path) -> None:
    process(tmp_path, 9, users=USER)
    slurmstepd(tmp_path, 10, "41.batch", parent=9)
    assert child(tmp_path) == Belonging(job_id=41, certain=False)


def test_a_subreaper_of_roots_may_be_its_parent(tmp_path: Path) -> None:
    process(tmp_path, 9)
    slurmstepd(tmp_path, 10, "41.batch", parent=9)
    assert child(tmp_path) == Belonging(job_id=41, certain=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="starts what runs as root")
def test_one_whose_program_an_upgrade_replaced_is_still_one(tmp_path: Path) -> None:
    """The kernel's own /proc: a running program that was replaced, or taken away."""
    program = tmp_path / "slurmstepd-new"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    with subprocess.Popen(["slurmstepd: [41.batch]", "60"], executable=program) as running:
        try:
            with opened(running.pid) as entry:
                assert entry is not None
                shown_by_s = time.monotonic() + within(10)
                while not entry.read("cmdline") and time.monotonic() < shown_by_s:
                    time.sleep(0.001)  # Popen returns while the kernel still sets up the program's arguments
                assert job_of_step(entry) == Belonging(job_id=41, certain=True)
                program.rename(tmp_path / "slurmstepd-old")
                assert job_of_step(entry) == Belonging(job_id=41, certain=True)
                (tmp_path / "slurmstepd-old").unlink()
                assert job_of_step(entry) == Belonging(job_id=41, certain=True)
        finally:
            running.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="starts what runs as root")
def test_a_process_that_ended_shows_nothing_any_more(tmp_path: Path) -> None:
    """A process that has its pid by then is not read through the folder that was opened."""
    with subprocess.Popen(["/bin/sleep", "60"]) as running, opened(running.pid) as entry:
        assert entry is not None and entry.user_ids == (0, 0, 0, 0)
        running.kill()
        running.wait()
        assert not entry.user_ids and entry.owner is None and not entry.parent and entry.executable() is None


def test_a_users_process_is_not_asked_for_its_title_or_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user decides how long the title is, and whether the kernel ever answers."""
    slurmstepd(tmp_path, 10, "41.batch")
    process(tmp_path, 11, title="slurmstepd: [42.batch]", users=USER, program="slurmd")
    asked, read, executable = [], ProcFolder.read, ProcFolder.executable

    def reading(entry: ProcFolder, name: str) -> bytes:
        if name in ("cmdline", "environ") and not entry.is_roots:
            asked.append(name)
        return read(entry, name)

    def naming(entry: ProcFolder) -> tuple[os.stat_result, str] | None:
        if not entry.is_roots:
            asked.append("exe")
        return executable(entry)

    monkeypatch.setattr(ProcFolder, "read", reading)
    monkeypatch.setattr(ProcFolder, "executable", naming)
    assert living_jobs(proc=tmp_path) == {41}
    assert slurmd_since_s("n0", proc=tmp_path) is None
    assert asked == []


def test_one_of_roots_that_becomes_a_users_meanwhile_has_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurmstepd(tmp_path, 10, "41.batch")
    read = ProcFolder.read

    def reading(entry: ProcFolder, name: str) -> bytes:
        if name == "cmdline":  # slurmstepd's child is root's until it starts the user's program
            process(tmp_path, 10, title="slurmstepd: [41.batch]", users=USER, program=SLURMSTEPD)
        return read(entry, name)

    monkeypatch.setattr(ProcFolder, "read", reading)
    assert living_jobs(proc=tmp_path) == frozenset()


def test_an_environment_of_any_length_costs_no_more_than_a_usual_one(tmp_path: Path) -> None:
    long = {"A": "x" * LONGEST, "RAD_GPUS": "GPU-1"}
    slurmstepd(tmp_path, 10, "41.batch")
    process(tmp_path, 11, parent=10, users=USER, environment=long)
    with opened(11, tmp_path) as entry:
        assert entry is not None
        assert len(entry.read("environ")) == LONGEST
    assert claimed_gpus([41], proc=tmp_path) == {}
