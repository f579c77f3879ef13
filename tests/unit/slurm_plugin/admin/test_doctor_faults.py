"""Each fault of bench/doctor_faults.py, in a folder: found, and gone once its fix is done to the letter."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.doctor_faults import FAULTS, Fault, seed
from lab.config import Site
from lab.files import write_files
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.admin import gather as gathering
from slurm_plugin.admin.checks import examine
from slurm_plugin.admin.edits import Change, Run
from slurm_plugin.admin.finding import Finding
from slurm_plugin.admin.templates import lua_folder
from slurm_plugin.core.clock import SystemClock

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a cluster's files belong to several users")

OLD, NEW = (22, 5, 8), (24, 11, 5)


@pytest.fixture
def etc(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The files of a private cluster, of which nothing runs."""
    fault: Fault = request.getfixturevalue("fault")
    lua = tmp_path / "venv/lib/python3.11/site-packages/slurm_plugin/lua"
    shutil.copytree(lua_folder(), lua)
    place = Place(root=tmp_path / "c", venv=tmp_path / "venv")
    site = Site(
        host="localhost",
        slurm_user="root",
        slurm_version=(OLD if fault.old else NEW)[:2],
        ports={"slurmctld": 1, "n0": 2, "n0-web": 3},
    )
    write_files(place, ClusterSpec(nodes=(NodeSpec(name="n0"),)), site)
    yield place.etc


def troubles(etc: Path, fault: Fault) -> list[Finding]:
    """Return what doctor finds; what only a running Slurm could tell is left out."""
    facts = gathering.gather(etc / "rad.toml", {}, SystemClock())
    version = OLD if fault.old else NEW
    facts = dataclasses.replace(facts, version=version, plugins=None, live=None, units={}, config_copied=True)
    return [each for each in examine(facts) if each.level in ("fail", "warn")]


def said(findings: list[Finding]) -> set[tuple[str, str]]:
    return {(each.subject, each.text) for each in findings}


def do(finding: Finding) -> None:
    """Do what a fix says: its lines from below, so that the numbers stay those that were shown."""
    changes = [deed for deed in finding.deeds if isinstance(deed, Change)]
    for change in sorted(changes, key=lambda change: -change.first):
        before = change.path.read_text() if change.path.exists() else ""
        change.path.write_text(change.applied(before))
    for deed in finding.deeds:
        if isinstance(deed, Run):
            subprocess.run(deed.argv, check=True)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_and_its_fix_mends_it(
    etc: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "_asked", lambda *_: (None, None))
    monkeypatch.setattr(gathering, "installed_version", lambda: None)
    monkeypatch.setattr(gathering, "_units", dict)
    right = said(troubles(etc, fault))
    seed(fault, etc)
    found = [each for each in troubles(etc, fault) if (each.subject, each.text) not in right]
    assert any(fault.says in each.text for each in found), found
    for _ in range(len(found)):
        wrong = [each for each in troubles(etc, fault) if (each.subject, each.text) not in right]
        if not wrong:
            break
        assert wrong[0].deeds, wrong[0]
        do(wrong[0])
    assert said(troubles(etc, fault)) == right


def test_there_are_forty() -> None:
    assert len(FAULTS) >= 40 and len({fault.name for fault in FAULTS}) == len(FAULTS)
