"""How programs are found, and what is kept of what they print."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import SHOWN_LIMIT, find_program, run

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


LONG = f"print('x' * {2 * SHOWN_LIMIT})"


def test_a_long_answer_is_kept_whole() -> None:
    """The list of 8,000 waiting jobs was cut at 4 MiB, and no turn was kept any more."""
    assert len(run([sys.executable, "-c", LONG], timeout_s=60)) == 2 * SHOWN_LIMIT + 1


def test_of_what_failed_the_end_is_kept() -> None:
    with pytest.raises(CommandError) as reported:
        run([sys.executable, "-c", f"{LONG}; print('why'); raise SystemExit(3)"], timeout_s=60)
    assert len(reported.value.output) <= SHOWN_LIMIT and reported.value.output.endswith("why\n")
