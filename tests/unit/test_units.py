"""The sandbox of our systemd units, scored by systemd-analyze where there is one (0 is safest, 10 worst)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.admin.own_files.templates import render, templates_folder
from slurm_plugin.radd.protocol.own_files import own_file

ANALYZE = shutil.which("systemd-analyze")
VALUES = {
    "prefix": "/usr",
    "templates": "/usr/share/rad",
    "config": "/etc/rad/rad.toml",
    "slurm_user": "slurm",
    "run": "/run/rad",
    "state": "/var/lib/rad",
    "log": "/var/log/rad",
    "socket": "/run/rad/radd.sock",
}
MOST = {"radd": 1.5, "rad-monitor": 4.0}
"""What systemd 252 said when this was written: 1.3 and 3.6; before there was a sandbox 9.2 and 9.6."""


def unit(name: str) -> str:
    return render((templates_folder() / "systemd" / f"{name}.service").read_text(), VALUES)


@pytest.mark.parametrize("name", MOST)
def test_what_a_unit_writes_to_is_what_rad_toml_names(name: str) -> None:
    lines = dict(line.partition("=")[::2] for line in unit(name).splitlines() if not line.startswith("#"))
    assert lines["ProtectSystem"] == "strict" and lines["NoNewPrivileges"] == "yes"
    assert lines["ReadWritePaths"] == "-/run/rad -/var/lib/rad -/var/log/rad"


def test_radd_keeps_no_privilege() -> None:
    text = unit("radd")
    assert "\nUser=slurm\n" in text and "\nCapabilityBoundingSet=\n" in text
    assert "\nStateDirectory=rad\n" in text and "\nLogsDirectory=rad\n" in text, "it makes no folder as root"


def test_what_the_prolog_trusts_is_given_to_no_other_job() -> None:
    """systemd gives a service's RuntimeDirectory, with all that is in it, to the user of that service as it starts.

    On a machine that is controller and GPU node radd got the ledger, and rad-monitor the socket of radd.
    """
    folders = {name: re.findall(r"(?m)^RuntimeDirectory=(\S+)$", unit(name)) for name in MOST}
    assert folders == {"radd": ["rad/radd"], "rad-monitor": ["rad"]}
    assert "\nUser=" not in unit("rad-monitor"), "root"
    assert str(own_file(Path(VALUES["socket"]), "lock")).startswith("/run/rad/radd/")


@pytest.mark.parametrize("name", MOST)
def test_a_unit_starts_nothing_that_a_bare_system_lacks(name: str) -> None:
    """Debian without procps has no /bin/kill, and there `systemctl reload` failed."""
    programs = re.findall(r"(?m)^Exec\w+=(\S+)", unit(name))
    assert programs[0].endswith(f"/{name}") and programs[1:] == ["/bin/sh"]


@pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze here")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    folder = templates_folder() / "systemd"
    values = {**VALUES, "slurm_user": "root"}  # a user that every machine has
    for path in folder.iterdir():
        text = render(path.read_text(), values)
        (tmp_path / path.name).write_text(re.sub(r"/usr/bin/rad\S*", "/bin/true", text))
    argv = [str(ANALYZE), "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert str(tmp_path) not in done.stderr, done.stderr


@pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("name", MOST)
def test_the_sandbox_scores_well(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.service"
    path.write_text(re.sub(r"/usr/bin/rad\S*", "/bin/true", unit(name)))
    argv = [str(ANALYZE), "security", "--no-pager", "--offline=true", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    score = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    if score is None:
        pytest.skip(f"this systemd-analyze has no offline mode: {done.stderr[:100]}")
    assert float(score[1]) <= MOST[name], done.stdout
