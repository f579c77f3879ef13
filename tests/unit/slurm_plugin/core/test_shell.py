"""How programs are found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_plugin.core.shell import find_program

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can take rights away from itself")
def test_a_folder_of_path_that_may_not_be_looked_into_is_passed_over(tmp_path: Path) -> None:
    """After `su USER` the PATH is still root's, /root/bin and all."""
    closed, open_ = tmp_path / "closed", tmp_path / "open"
    for folder in (closed, open_):
        folder.mkdir()
        (folder / "sbatch").touch(mode=0o755)
    for folder in (*reversed(tmp_path.parents[:3]), tmp_path):
        folder.chmod(folder.stat().st_mode | 0o011)
    closed.chmod(0o700)
    os.seteuid(NOBODY)
    try:
        found = find_program("sbatch", folders=(str(closed), str(open_)))
    finally:
        os.seteuid(0)
    assert found == str(open_ / "sbatch")
