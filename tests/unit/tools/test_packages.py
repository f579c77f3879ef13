"""What a package does when it goes, tried below a folder that stands for the machine's root."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from paths import CHECKOUT

from slurm_plugin.admin.cli import main

PURGE = (CHECKOUT / "distributions/packages/after_purge.sh").read_text()


def purge(root: Path) -> str:
    """Run the script; `/etc/rad/` in slurm.conf stays what is looked for."""
    reported = f"{root}/reported"  # what slurm.conf says of RAD is looked for as it is there
    here = re.sub(r"/(?=(etc|var|run|opt)/)", f"{root}/", PURGE.replace("]*/etc/rad/[", f"]*{reported}["))
    assert here.count(f"{root}/") == len(re.findall(r"/(?:etc|var|run|opt)/", PURGE)), (
        "nothing of this machine"
    )
    here = here.replace(reported, "/etc/rad/")
    done = subprocess.run(["/bin/sh", "-ec", here], capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.parametrize("folder", ["/etc/slurm", "/opt/slurm/etc", "/cm/shared/apps/slurm etc"])
@pytest.mark.parametrize("named", [True, False])
def test_hooks_that_slurm_conf_names_stay_wherever_it_is(tmp_path: Path, folder: str, named: bool) -> None:
    """A hook that is not there drains its node."""
    options = ["--root", str(tmp_path), "--slurm", folder, "--gpu-memory-mib", "40000", "--key"]
    assert CliRunner().invoke(main, ["install", *options]).exit_code == 0
    listed = tmp_path / "etc/rad/installed.sha256"
    listed.write_text(listed.read_text().replace("  /", f"  {tmp_path}/"))
    slurm_conf = tmp_path / folder.lstrip("/") / "slurm.conf"
    slurm_conf.write_text(f"{'' if named else '#'}Prolog=/etc/rad/prolog.sh\n")
    said = purge(tmp_path)
    assert (tmp_path / "etc/rad/prolog.sh").exists() is named
    assert ("still names hooks" in said) is named
    assert not (tmp_path / "etc/rad/key").exists()
