"""Small file systems that tests fill to the last byte and the last inode."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_plugin.core.process.run import run


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """Mount a tmpfs of its own, e.g. with options "size=1m,nr_inodes=100"."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder.mkdir()
    run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], timeout_s=60)
    try:
        yield folder
    finally:
        run(["umount", str(folder)], timeout_s=60)  # a full one takes its time on a busy machine


def fill(folder: Path) -> None:
    """Take every byte and every inode of a file system."""
    with (folder / "filler").open("ab", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(bytes(4096))
    with pytest.raises(OSError):
        for number in itertools.count():
            (folder / f"filler-{number}").touch(exist_ok=False)
    with pytest.raises(OSError):
        (folder / "one more").touch()


def free(folder: Path) -> None:
    """Give it all back."""
    for path in folder.glob("filler*"):
        path.unlink()
