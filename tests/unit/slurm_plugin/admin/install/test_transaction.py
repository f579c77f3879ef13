"""Files change together or not at all: obstacles are reported before, and a kill at any step changes nothing."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.admin.install import backup
from slurm_plugin.admin.install.transaction import JOURNAL, Write, change_together, hindered, undo_unfinished
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.process.run import run
from tests.small_disks import fill, small_disk

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")

_STEPS = {"os.mkdir", "os.rename", "os.remove", "os.chown", "os.chmod", "os.rmdir", "os.link", "os.setxattr"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def the_change(folder: Path) -> list[Write]:
    """A file that changes, one that comes (with folders) and one that goes."""
    return [
        Write(path=folder / "slurm/hook.sh", old=b"#!/bin/sh\n", new=b"#!/bin/sh\nrads\n"),
        Write(path=folder / "rad/lua/new.lua", old=None, new=b"x = 1\n", folder=True),
        Write(path=folder / "slurm/gone.lua", old=b"y = 1\n", new=None),
        Write(path=folder / "slurm/slurm.conf", old=b"a=1\n", new=b"a=2\n"),
    ]


def site(folder: Path) -> Path:
    (folder / "slurm").mkdir(parents=True)
    for each in the_change(folder):
        if each.old is not None:
            each.path.write_bytes(each.old)
    (folder / "slurm/hook.sh").chmod(0o750)
    return folder


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def dies_at(step: int, call: Callable[[], object]) -> bool:
    """Run a call in a process of its own that is killed at its step; return whether it came so far."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            lit(step)
            call()
            status = 0
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def change(folder: Path) -> None:
    change_together(the_change(folder), folder / "rad")


def lit(step: int) -> None:
    left = step

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
        if writes or event in _STEPS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), 9)

    sys.addaudithook(hook)


def test_killed_at_any_step_every_file_is_whole_and_the_next_run_undoes_it(tmp_path: Path) -> None:
    for step in range(1, 200):
        folder = site(tmp_path / str(step))
        before = state(folder)
        killed = dies_at(step, lambda folder=folder: change(folder))  # type: ignore[misc]
        for each in the_change(folder):
            now = each.path.read_bytes() if each.path.exists() else None
            assert now in (each.old, each.new)
        if not killed:
            break
        undo_unfinished(folder / "rad")
        after = {name: found for name, found in state(folder).items() if name != "rad"}
        done = (folder / "slurm/slurm.conf").read_bytes() == b"a=2\n"
        assert after == before or (done and not (folder / "rad" / JOURNAL).exists()), step
    assert step > 20
    assert (folder / "slurm/hook.sh").stat().st_mode & 0o777 == 0o750
    assert not list(folder.rglob(".*"))


def test_an_undoing_that_is_killed_itself_is_done_by_the_next(tmp_path: Path) -> None:
    for step in range(1, 60):
        folder = site(tmp_path / str(step))
        before = state(folder)
        assert dies_at(26, lambda folder=folder: change(folder))  # type: ignore[misc]
        killed = dies_at(step, lambda folder=folder: undo_unfinished(folder / "rad"))  # type: ignore[misc]
        undo_unfinished(folder / "rad")
        assert {name: found for name, found in state(folder).items() if name != "rad"} == before
        if not killed:
            break
    assert step > 3


def test_what_an_admin_changed_after_the_kill_is_left_alone_and_reported(tmp_path: Path) -> None:
    for step in range(1, 99):  # until it is killed between the first file and the last
        folder = site(tmp_path / str(step))
        assert dies_at(step, lambda folder=folder: change(folder))  # type: ignore[misc]
        if b"rads" in (folder / "slurm/hook.sh").read_bytes():
            break
    assert (folder / "slurm/slurm.conf").read_bytes() == b"a=1\n"
    (folder / "slurm/hook.sh").write_bytes(b"#!/bin/sh\nmine\n")
    said = undo_unfinished(folder / "rad")
    assert any("hook.sh: not restored" in line for line in said)
    assert (folder / "slurm/hook.sh").read_bytes() == b"#!/bin/sh\nmine\n"


def held(folder: Path) -> int:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


def test_a_second_run_waits_and_a_user_who_locks_the_folder_holds_up_none(tmp_path: Path) -> None:
    folder = site(tmp_path / "site")
    (folder / "rad" / JOURNAL).mkdir(mode=0o700, parents=True)
    of_a_run, of_a_user = held(folder / "rad" / JOURNAL), held(folder / "rad")
    with pytest.raises(ConfigError, match="is at work"):
        change(folder)
    os.close(of_a_run)
    change(folder)
    os.close(of_a_user)
    assert (folder / "slurm/slurm.conf").read_bytes() == b"a=2\n"
    assert not (folder / "rad" / JOURNAL).exists()


def refused(folder: Path, why: str) -> None:
    """Both the look beforehand and the change itself say why, and not a byte is another."""
    before = state(folder)
    assert any(why in line for line in hindered(the_change(folder), folder / "rad")), why
    with pytest.raises(ConfigError, match="nothing was changed"):
        change_together(the_change(folder), folder / "rad")
    assert state(folder) == before


def test_a_dangling_link_is_reported_before(tmp_path: Path) -> None:
    folder = site(tmp_path / "a")
    (folder / "slurm/hook.sh").unlink()
    (folder / "slurm/hook.sh").symlink_to("/nowhere/hook.sh")
    refused(folder, "a link that leads nowhere (/nowhere/hook.sh)")


def test_a_folder_that_is_missing_is_reported_before(tmp_path: Path) -> None:
    folder = site(tmp_path / "a")
    write = Write(path=folder / "slurm/prolog.d/50-rad", old=None, new=b"#!/bin/sh\n")
    assert "there is no folder" in hindered([write], folder / "rad")[0]
    assert hindered(the_change(folder), folder / "rad") == []


@root_only
def test_a_bind_mount_of_one_file_is_reported_before(tmp_path: Path) -> None:
    folder = site(tmp_path / "a")
    hook = str(folder / "slurm/hook.sh")
    run(["mount", "--bind", hook, hook], timeout_s=5)
    try:
        refused(folder, "is mounted by itself")
    finally:
        run(["umount", hook], timeout_s=60)


@root_only
def test_a_read_only_file_system_is_reported_before(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=1m") as disk:
        folder = site(disk / "a")
        run(["mount", "-o", "remount,ro", str(disk)], timeout_s=5)
        refused(folder, "read-only file system")


@root_only
@pytest.mark.slow
@pytest.mark.parametrize("options", ["nr_inodes=1000", "nr_inodes=30"])
def test_a_full_disk_is_reported_before(tmp_path: Path, options: str) -> None:
    with small_disk(tmp_path / "disk", f"size=1m,{options}") as disk:
        folder = site(disk / "a")
        fill(disk)
        refused(folder, "its file system is full")


@root_only
def test_an_immutable_file_or_folder_is_reported_before(tmp_path: Path) -> None:
    for what in ("slurm/hook.sh", "slurm"):
        folder = site(tmp_path / what.replace("/", "-"))
        if subprocess.run(["chattr", "+i", str(folder / what)], capture_output=True, check=False).returncode:
            pytest.skip("this file system has no immutable files")
        try:
            refused(folder, "immutable")
        finally:
            run(["chattr", "-i", str(folder / what)], timeout_s=5)


def test_a_file_that_was_changed_meanwhile_ends_it(tmp_path: Path) -> None:
    folder = site(tmp_path / "a")
    (folder / "slurm/slurm.conf").write_bytes(b"a=3\n")
    before = state(folder)
    with pytest.raises(ConfigError, match="it was changed meanwhile"):
        change_together(the_change(folder), folder / "rad")
    assert {name: found for name, found in state(folder).items() if name != "rad"} == before


def test_what_slurm_names_comes_before_it_is_named(tmp_path: Path) -> None:
    """The order in which a site's files change: hooks, shards of gres.conf, GresTypes, nodes."""
    etc = tmp_path / "rad"
    texts = {
        "nodes.conf": ("NodeName=n0 Gres=gpu:1\n", "NodeName=n0 Gres=gpu:1,shard:9\n"),
        "slurm.conf": ("GresTypes=gpu\n", "GresTypes=gpu,shard\nProlog=/etc/rad/prolog.sh\n"),
        "gres.conf": ("Name=gpu\n", "Name=gpu\nName=shard Count=9\n"),
        "site.sh": ("#!/bin/sh\n", "#!/bin/sh\n/etc/rad/prolog.sh\n"),
    }
    before: dict[Path, str | None] = {tmp_path / name: old for name, (old, _) in texts.items()}
    for path, old in before.items():
        path.write_text(old or "")
    after = {tmp_path / name: new for name, (_, new) in texts.items()}
    found = [each.path.name for each in backup.writes(etc, before, after, ()) if each.path in after]
    assert found == ["site.sh", "gres.conf", "slurm.conf", "nodes.conf"]
