"""Each fault of bench/faults/doctor_faults.py, in a folder: found, and gone once its fix is done to the letter."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from golden_texts import Golden

from bench.faults.doctor_faults import FAULTS, Fault, lay_guards, seed
from lab.config import Site
from lab.files import write_files
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.admin.doctor import collect as gathering
from slurm_plugin.admin.doctor.checks.run import examine
from slurm_plugin.admin.doctor.finding import Finding
from slurm_plugin.admin.doctor.fixes import LineChange, RunCommand
from slurm_plugin.admin.own_files.templates import lua_folder
from slurm_plugin.core.clock import SystemClock

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster's files belong to several users"),
]

OLD, NEW = (22, 5, 8), (24, 11, 5)


@pytest.fixture
def etc(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return a_site(tmp_path, request.getfixturevalue("fault"))


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_slurm_answers", lambda *_: (None, None))
    monkeypatch.setattr(gathering, "installed_version", lambda: NEW)
    monkeypatch.setattr(gathering, "units", dict)
    monkeypatch.setattr(gathering, "detect", lambda _: None)


def a_site(folder: Path, fault: Fault) -> Path:
    """Return the folder of slurm.conf of a private cluster, of which nothing runs."""
    shutil.copytree(lua_folder(), folder / "venv/lib/python3.11/site-packages/slurm_plugin/lua")
    place = Place(root=folder / "c", venv=folder / "venv")
    site = Site(
        host="localhost",
        slurm_user="root",
        slurm_version=(OLD if fault.old else NEW)[:2],
        ports={"slurmctld": 1, "n0": 2, "n0-web": 3},
    )
    write_files(place, ClusterSpec(nodes=(NodeSpec(name="n0"),)), site)
    lay_guards(place.etc)
    return place.etc


def troubles(etc: Path, fault: Fault) -> list[Finding]:
    """Return what doctor finds; what only a running Slurm could tell is left out."""
    facts = gathering.gather(etc / "rad.toml", {}, SystemClock())
    version = OLD if fault.old else NEW
    facts = dataclasses.replace(facts, version=version, plugins=None, live=None, units={}, config_copied=True)
    found = [each for each in examine(facts) if each.level in ("fail", "warn")]
    return [
        each for each in found if "has no gpu_type" not in each.text
    ]  # some faults are about tables of types


def said(findings: list[Finding]) -> set[tuple[str, str]]:
    return {(each.subject, each.text) for each in findings}


def do(finding: Finding) -> None:
    """Do what a fix says: its lines from below, so that the numbers stay those that were shown."""
    changes = [action for action in finding.actions if isinstance(action, LineChange)]
    for change in sorted(changes, key=lambda change: -change.first):
        before = change.path.read_text() if change.path.exists() else ""
        change.path.write_text(change.applied(before))
    for action in finding.actions:
        if isinstance(action, RunCommand):
            subprocess.run(action.argv, check=True)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_and_its_fix_removes_it(etc: Path, fault: Fault) -> None:
    right = said(troubles(etc, fault))
    seed(fault, etc)
    found = [each for each in troubles(etc, fault) if (each.subject, each.text) not in right]
    assert any(fault.says in each.text for each in found), found
    for _ in range(len(found)):
        wrong = [each for each in troubles(etc, fault) if (each.subject, each.text) not in right]
        if not wrong:
            break
        assert wrong[0].actions, wrong[0]
        do(wrong[0])
    assert said(troubles(etc, fault)) == right


HEAD = """\
# What does rad doctor find, and how is it fixed?

Each row is a correct site with one fault: the finding of `rad doctor`, and its fix (N: line number). A test writes this
page, applies each fix literally and finds nothing afterwards (`tests/unit/slurm_plugin/admin/doctor/test_faults.py
--overwrite`). `bench/faults/doctor_faults.py` does the same on a real Slurm, where a job then shares a GPU.

| fault | rad doctor says | fix |
|---|---|---|
"""


def as_admins_see_it(text: str, etc: Path) -> str:
    """Return a finding's text with an admin's paths, for a cell of a table."""
    text = re.sub(rf"{re.escape(str(etc))}/((rad\.toml|key)\b|(?!site_)\w+\.sh)", r"/etc/rad/\1", text)
    text = text.replace(f"{etc.parent}/dev/n0/gpu", "/dev/nvidia").replace(str(etc), "/etc/slurm")
    text = re.sub(r"(\.(?:toml|conf|sh|lua)):\d+\b", r"\1:N", text)
    return text.replace("|", r"\|").replace("\n", "<br>")


def test_the_page_of_the_manual(tmp_path: Path, golden: Golden) -> None:
    rows = []
    sites = {old: a_site(tmp_path / str(old), Fault(name="", says="", old=old)) for old in (False, True)}
    right = {old: said(troubles(etc, Fault(name="", says="", old=old))) for old, etc in sites.items()}
    for fault in FAULTS:
        etc = sites[fault.old]
        before = {name: (etc / name).read_bytes() for name in fault.files if (etc / name).exists()}
        modes = {name: (etc / name).stat().st_mode for name in fault.modes if (etc / name).exists()}
        seed(fault, etc)
        found = [each for each in troubles(etc, fault) if (each.subject, each.text) not in right[fault.old]]
        reported = next(each for each in found if fault.says in each.text)
        words = [
            as_admins_see_it(text, etc) for text in (f"{reported.subject}: {reported.text}", reported.fix)
        ]
        rows.append(f"| {fault.name} | {words[0]} | {words[1]} |")
        for name, content in before.items():
            (etc / name).write_bytes(content)
        for name, mode in modes.items():
            (etc / name).chmod(mode)
    golden("doctor/faults.md", HEAD + "\n".join(rows))


def test_there_are_forty() -> None:
    assert len(FAULTS) >= 40 and len({fault.name for fault in FAULTS}) == len(FAULTS)
