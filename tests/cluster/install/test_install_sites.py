"""`rad install --edit-slurm` where hooks are out of reach, twice, and killed at each step: the old site or the new."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from slurm_plugin.slurm.versions import known, parse_version, traits
from tests.cluster.install.test_edit_slurm import again, bare
from tests.cluster.install.test_uninstall_order import installed, jobs, jobs_run, rads, restart, typed

__all__ = ["bare", "jobs"]
pytestmark = pytest.mark.cluster

STRIDE = 1 if os.environ.get("RAD_FAULTS") == "long" else 5
"""Steps from one kill to the next; all of them take four minutes."""
KILLED = """
import os, sys
from slurm_plugin.admin.cli import main
left = int(sys.argv.pop(1))
def hook(event, arguments):
    global left
    if event in ("os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
sys.addaudithook(hook)
main()
"""


def files(cluster: Cluster) -> dict[str, bytes]:
    """Return what lies in Slurm's folder and in RAD's; a key is any key.

    Copies of the last good rad.toml are left out: a daemon that runs writes one when it comes to it.
    """
    paths = [path for folder in (cluster.place.etc, rads(cluster)) for path in folder.rglob("*")]
    kept = [path for path in paths if path.is_file() and path.suffix != ".good"]
    return {str(path): b"" if path.name == "key" else path.read_bytes() for path in kept}


def copied(cluster: Cluster, name: str) -> Path:
    """Return a copy of both folders, owners and all."""
    copy = cluster.place.root / "copies" / name
    copy.mkdir(parents=True)
    subprocess.run(["cp", "-a", cluster.place.etc, rads(cluster), copy], check=True)
    return copy


def put_in_place(cluster: Cluster, copy: Path) -> None:
    for folder in (cluster.place.etc, rads(cluster)):
        shutil.rmtree(folder)
        subprocess.run(["cp", "-a", copy / folder.name, folder], check=True)


def joins_hooks(cluster: Cluster) -> bool:
    version = parse_version(cluster.slurm("scontrol", "--version"))
    assert known(version)
    return traits(version).joins_hooks


def goes_back(cluster: Cluster, before: dict[str, bytes]) -> None:
    """Uninstall with its restarts, and find Slurm's own files as they were."""
    typed(cluster, "uninstall")
    restart(cluster, "slurmctld")
    typed(cluster, "uninstall")
    again(cluster)
    after = files(cluster)
    assert {name: after.get(name) for name in before} == before


def test_hooks_in_a_folder_that_is_not_on_this_machine(bare: Cluster, jobs: Jobs) -> None:
    etc, text = bare.place.etc, bare.place.slurm_conf.read_text()
    for folder, script in (("prolog.d", "10-site"), ("epilog.d", "10-site.sh")):
        (etc / folder).mkdir()
        (etc / folder / script).write_text(f"#!/bin/sh\necho {folder} >>{bare.place.log}/site\n")
        (etc / folder / script).chmod(0o755)
    hooks = f"Prolog={etc}/prolog.d/*\nEpilog={etc}/epilog.d/*.sh\n"
    bare.place.slurm_conf.write_text(re.sub(r"(?m)^Prolog=.*\n", hooks, text))
    before = files(bare)
    for options in (["--dry-run"], []):
        said = typed(bare, "install", *options, mounts=f"mv {etc}/prolog.d {etc}/elsewhere && ")
        (etc / "elsewhere").rename(etc / "prolog.d")
        assert "nothing w" in said and f"there is no folder {etc}/prolog.d" in said, said
        assert "status 0" not in said and files(bare) == before
    installed(bare, jobs)
    assert {"prolog.d", "epilog.d"} <= set((bare.place.log / "site").read_text().split())
    goes_back(bare, before)
    jobs_run(jobs)


@pytest.mark.parametrize("name", ["site.sh", "site_task.sh"])
def test_a_hook_that_cannot_be_changed(bare: Cluster, jobs: Jobs, name: str) -> None:
    hook, before = bare.place.etc / name, files(bare)
    mounts = f"mount --bind {hook} {hook} && mount -o remount,bind,ro {hook} && "
    for options in (["--dry-run"], []):
        said = typed(bare, "install", *options, mounts=mounts)
        if name == "site.sh" and joins_hooks(bare):  # a line next to the site's own, which stays as it is
            assert said.rstrip().endswith("status 0"), said
        else:
            assert "nothing w" in said and f"{hook}: is mounted by itself" in said, said
            assert "status 0" not in said and files(bare) == before
    if "status 0" in said:
        again(bare)
    jobs_run(jobs)


def test_a_second_install_changes_nothing_and_fixes_what_was_generated_again(
    bare: Cluster, jobs: Jobs
) -> None:
    before = files(bare)
    installed(bare, jobs)
    once = files(bare)
    said = typed(bare, "install")
    assert said.rstrip().endswith("status 0") and "Slurm's files need no change" in said
    assert files(bare) == once
    for name in ("slurm.conf", "site.conf", "gres.conf"):
        (bare.place.etc / name).write_bytes(before[str(bare.place.etc / name)])
    said = typed(bare, "install")
    assert "+GresTypes=gpu,shard" in said and "Name=shard" in said, said
    assert files(bare) == once
    installed(bare, jobs)
    rad_toml = rads(bare) / "rad.toml"
    rad_toml.unlink()
    said = typed(bare, "install", "--gpu-memory-mib", "39330")
    assert "+shards_per_gpu" in said, "a new rad.toml follows the shards that are there"
    bare.slurm("sha256sum", "--ignore-missing", "-c", str(rads(bare) / "installed.sha256"))
    goes_back(bare, {name: text for name, text in before.items() if name != str(rad_toml)})
    assert not rad_toml.exists()


def test_killed_at_each_step_and_run_again(bare: Cluster, jobs: Jobs) -> None:
    """At each step Slurm starts and jobs run; the next run ends as one that was not killed."""
    copies: dict[str, Path] = {}

    def each_step(command: str) -> None:
        first = copied(bare, command)
        typed(bare, command)
        whole = files(bare)
        for step in itertools.count(1, STRIDE):
            put_in_place(bare, first)
            program = (f"{bare.place.venv}/bin/python", "-IBc", KILLED, str(step))
            said = typed(bare, command, program=program)
            names = [bare.place.etc / "slurm.conf", *bare.place.etc.glob("*.*"), *rads(bare).glob("*.sh")]
            seen = repr([(path.name, path.read_bytes()) for path in sorted(set(names)) if path.is_file()])
            if seen not in copies:
                copies[seen] = copied(bare, f"{command}-{step}")
            again_said = typed(bare, command)
            assert files(bare) == whole, (command, step, said, again_said)
            if "status 137" not in said:
                break
        assert step > 20

    each_step("install")
    again(bare)
    restart(bare, "RAD")
    each_step("uninstall")
    assert len(copies) > (8 if STRIDE == 1 else 3)
    for copy in copies.values():
        put_in_place(bare, copy)
        again(bare)
        jobs_run(jobs)
