"""A site's own hooks, in every way that slurm.conf(5) lets them be named: found, and RAD's put next to them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.admin.doctor.checks.slurm_conf import check_hooks
from slurm_plugin.admin.doctor.collect import hook_scripts
from slurm_plugin.admin.doctor.collect_local import joined
from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.finding import Finding
from slurm_plugin.admin.doctor.fixes import LineChange, RunCommand
from slurm_plugin.slurm.files.conf_lines import read_conf

OLD, NEW = (22, 5, 8), (24, 11, 5)
SITE = "#!/bin/bash\necho site\n"


def script(path: Path, text: str = SITE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def reported(folder: Path, version: tuple[int, int, int]) -> dict[str, Finding]:
    path = folder / "slurm.conf"
    conf = read_conf(path)
    scripts = hook_scripts(conf, path, version)
    facts = Facts(
        config_path=folder / "rad" / "rad.toml",
        slurm_conf_path=path,
        slurm=conf,
        version=version,
        hooks={name: joined(map(str, paths)) for name, paths in scripts.items()},
        executable={name: all(os.access(one, os.X_OK) for one in paths) for name, paths in scripts.items()},
    )
    return {each.subject: each for each in check_hooks(facts)}


def do(finding: Finding) -> None:
    assert finding.actions, finding
    for action in finding.actions:
        if isinstance(action, LineChange):
            action.path.write_text(action.applied(action.path.read_text() if action.path.exists() else ""))
        elif isinstance(action, RunCommand):
            subprocess.run(action.argv, check=True)


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    for name, module in (("prolog", "prolog"), ("task_prolog", "prolog.task_prolog"), ("epilog", "epilog")):
        script(tmp_path / "rad" / f"{name}.sh", f"#!/bin/sh\n: python -m {module}\n")
    return tmp_path


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(
    "names",
    [
        ("{etc}/site.sh",),
        ("site.sh",),
        ("{etc}/d/*",),
        ("d/*.sh",),
        ("{etc}/none/*",),
        ("{etc}/site.sh", "{etc}/other.sh"),
        ("{etc}/rad/prolog.sh", "{etc}/site.sh"),
    ],
    ids=str,
)
def test_what_is_missing_is_put_next_to_the_sites_own(
    etc: Path, names: tuple[str, ...], version: tuple[int, int, int]
) -> None:
    for name in ("site.sh", "other.sh", "d/1.sh"):
        script(etc / name)
    (etc / "none").mkdir()
    lines = [
        f"{hook}={name.format(etc=etc)}" for name in names for hook in ("Prolog", "Epilog", "TaskProlog")
    ]
    (etc / "slurm.conf").write_text("\n".join(lines) + "\n")
    found = reported(etc, version)
    both = len(names) == 2 and "rad" in names[0] and version == NEW
    assert found["Prolog"].level == ("ok" if both else "fail"), "before 24.11 the last line alone counts"
    for hook in found:
        if (finding := reported(etc, version)[hook]).level == "fail":
            do(finding)
    assert {each.level for each in reported(etc, version).values()} == {"ok"}
    left = (etc / "slurm.conf").read_text().splitlines()
    assert set(lines) <= set(left), "the site's own lines stay"


def test_a_pattern_that_rad_would_not_match_is_left_to_a_person(etc: Path) -> None:
    script(etc / "d/1.site")
    (etc / "slurm.conf").write_text(f"Prolog={etc}/d/*.site\n")
    assert "put a script" in reported(etc, NEW)["Prolog"].fix and not reported(etc, NEW)["Prolog"].actions


def test_no_line_of_shell_is_put_into_what_is_none(etc: Path) -> None:
    script(etc / "site.py", "#!/usr/bin/env python3\nprint()\n")
    (etc / "slurm.conf").write_text(f"Prolog={etc}/site.py\nTaskProlog={etc}/site.py\n")
    assert reported(etc, NEW)["Prolog"].actions, "slurm.conf gets a line more"
    for finding in (reported(etc, OLD)["Prolog"], reported(etc, NEW)["TaskProlog"]):
        assert "no shell script" in finding.fix and not finding.actions


def test_a_task_prolog_that_refuses_is_heard_by_the_sites_own(etc: Path) -> None:
    """A job that was put back must not start: TaskProlog says so by its status."""
    site = script(etc / "site.sh", "#!/bin/sh\necho export SITE=1\n")
    (etc / "slurm.conf").write_text(f"TaskProlog={site}\n")
    do(reported(etc, NEW)["TaskProlog"])
    assert subprocess.run([site], check=True, capture_output=True, text=True).stdout == "export SITE=1\n"
    script(etc / "rad" / "task_prolog.sh", "#!/bin/sh\nexit 1\n")
    assert subprocess.run([site], check=False).returncode == 1
