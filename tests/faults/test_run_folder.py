"""The node's state folder cannot be written for a while: read-only, or full of a user's bytes or files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.trial import Trials

from lab.cluster import Cluster
from lab.load import equal_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

AWAY_S = 10.0
SIZE = "size=2m,nr_inodes=400,mode=755"


def mount(*argv: str) -> None:
    subprocess.run(["mount", *argv], check=True, capture_output=True)


@pytest.fixture(autouse=True)
def _may_mount() -> None:
    probe = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no file system may be mounted here")
    subprocess.run(["umount", "/mnt"], check=True)


def mounted(cluster: Cluster) -> None:
    run = cluster.place.run / "n0"
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    mount("-t", "tmpfs", "-o", SIZE, "tmpfs", str(run))
    for name, data in before.items():
        (run / name).write_bytes(data)
    cluster.daemons.stop("monitor-n0")
    cluster.start_monitor(equal_nodes(1)[0])


def unmounted(cluster: Cluster) -> None:
    subprocess.run(["umount", "-l", str(cluster.place.run / "n0")], check=False, capture_output=True)


def read_only(cluster: Cluster) -> None:
    run = str(cluster.place.run / "n0")
    mount("-o", "remount,ro", run)
    cluster.clock.sleep(AWAY_S)
    mount("-o", "remount,rw", run)


def full_of_bytes(cluster: Cluster) -> None:
    _full(cluster, fill_bytes)


def full_of_files(cluster: Cluster) -> None:
    _full(cluster, fill_files)


def _full(cluster: Cluster, fill: Callable[[Path], None]) -> None:
    folder = cluster.place.run / "n0" / "another"
    folder.mkdir()
    for _ in range(int(AWAY_S)):  # what is given up meanwhile is taken too
        fill(folder)
        cluster.clock.sleep(1)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def fill_bytes(folder: Path) -> None:
    for size in (65536, 4096, 1):
        try:
            with (folder / "bytes").open("ab", buffering=0) as file:
                while True:
                    file.write(os.urandom(size))
        except OSError:
            continue


def fill_files(folder: Path) -> None:
    count = len(os.listdir(folder))
    try:
        while True:
            (folder / f"{count}").touch()
            count += 1
    except OSError:
        return


def test_run_is_read_only_for_10_s(trials: Trials) -> None:
    trials.check("paths.run read-only for 10 s", read_only, before=mounted, after=unmounted)


def test_run_is_full_of_bytes_for_10_s(trials: Trials) -> None:
    trials.check("paths.run without a free byte for 10 s", full_of_bytes, before=mounted, after=unmounted)


def test_run_is_full_of_files_for_10_s(trials: Trials) -> None:
    trials.check("paths.run without a free inode for 10 s", full_of_files, before=mounted, after=unmounted)
