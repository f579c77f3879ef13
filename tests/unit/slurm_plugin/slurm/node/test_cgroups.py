"""A cgroup counts where Slurm made it, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_proc import cgroups, give_away, process

from slurm_plugin.slurm.node.daemons import Belonging
from slurm_plugin.slurm.node.processes import owners_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="Slurm's cgroups are root's")

USER = (1000, 1000, 1000, 1000)
SCOPE = "/system.slice/slurmstepd.scope"


class Cgroups:
    """A fake /proc with one hierarchy."""

    def __init__(self, folder: Path, *jobs: str, version: int = 2) -> None:
        self.proc, self.mounted = folder / "proc", folder / "cgroup"
        self._prefix = "0::" if version == 2 else "4:memory:"
        cgroups(self.proc, self.mounted, *jobs, version=version)

    def job_in(self, path: str) -> int | None:
        process(self.proc, 11, users=USER, cgroup=f"1:name=systemd:/\n{self._prefix}{path}\n")
        found = owners_of([11], proc=self.proc).get(11)
        assert found is None or found == Belonging(job_id=found.job_id, certain=True)
        return None if found is None else found.job_id


@pytest.mark.parametrize(
    ("version", "job"),
    [
        (1, "/slurm/uid_1000/job_42"),
        (1, "/slurm_n0/uid_1000/job_42"),
        (1, "/docker/abc/slurm/uid_1000/job_42"),
        (2, f"{SCOPE}/job_42"),
        (2, "/system.slice/n0_slurmstepd.scope/job_42"),
        (2, "/kubepods/pod1/system.slice/slurmstepd.scope/job_42"),
    ],
)
def test_a_cgroup_of_slurms(tmp_path: Path, version: int, job: str) -> None:
    node = Cgroups(tmp_path, job, version=version)
    assert node.job_in(job) == 42
    assert node.job_in(f"{job}/step_0/user/task_0") == 42
    assert node.job_in(f"{job}/step_0/job_43") == 42, "a user may make folders in a step's of cgroup/v1"


@pytest.mark.parametrize(
    "path",
    [
        "/job_42",
        "/user.slice/job_42",
        "/slurm/job_42",
        f"{SCOPE}/job_42x",
        f"{SCOPE}/system/job_42",
        "/myslurmstepd.scopes/job_42",
        f"/../..{SCOPE}/job_42",
    ],
)
def test_a_folder_elsewhere_is_none(tmp_path: Path, path: str) -> None:
    assert Cgroups(tmp_path, path).job_in(path) is None


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "foreign", ["user@1000.service", "user@1000.service/{}", "user@1000.service/{}/job_42"]
)
def test_a_folder_below_a_users_is_none_whatever_its_name(tmp_path: Path, version: int, foreign: str) -> None:
    middle = "slurmstepd.scope" if version == 2 else "slurm/uid_0"
    job = f"/user@1000.service/{middle}/job_42"
    node = Cgroups(tmp_path, job, version=version)
    give_away(node.mounted / foreign.format(middle), 1000)
    assert node.job_in(job) is None


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_no_name_of_a_users_begins_a_line(tmp_path: Path, end: str) -> None:
    """Seen on Linux 6.18: the kernel writes these as they are, in names of cgroups and of mount points."""
    node = Cgroups(tmp_path, f"{SCOPE}/job_42")
    with (node.proc / "self" / "mountinfo").open("ab") as file:
        file.write(f"31 25 0:27 / /scratch/x{end}y rw,nosuid - fuse.x x rw,user_id=1000\n".encode())
    assert node.job_in(f"/user@1000.service/x{end}0::{SCOPE}/job_42") is None
    assert node.job_in(f"{SCOPE}/job_42/x{end}y") == 42


def test_a_folder_that_is_not_there_or_a_hierarchy_that_is_not_mounted_is_none(tmp_path: Path) -> None:
    node = Cgroups(tmp_path)
    assert node.job_in(f"{SCOPE}/job_42") is None
    assert Cgroups(tmp_path, "/slurm/uid_0/job_42", version=1).job_in("/slurm/uid_0/job_42") == 42
    process(node.proc, 12, users=USER, cgroup="5:devices:/slurm/uid_0/job_42\n")
    assert owners_of([12], proc=node.proc) == {}


def test_a_mount_of_a_part_of_the_hierarchy(tmp_path: Path) -> None:
    """A container that sees the host's paths and its own part of the tree."""
    node = Cgroups(tmp_path, f"{SCOPE}/job_42")
    mounts = node.proc / "self" / "mountinfo"
    mounts.write_text(mounts.read_text().replace("0:26 / ", "0:26 /docker/abc "))
    assert node.job_in(f"/docker/abc{SCOPE}/job_42") == 42
    assert node.job_in(f"{SCOPE}/job_42") is None
