"""Counts of a small repository, where each can be seen by eye."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.house import House, Walk, table

FILES = {
    "README.md": "one two `tests/a.py::test_nobody` told\n",
    "docs/user.md": "three\n",
    "ARCHITECTURE.md": "four\n",
    "docs/measurements/2026-11-a.md": "no page of the manual\n",
    "slurm_plugin/__init__.py": "",
    "slurm_plugin/admin/__init__.py": "",
    "slurm_plugin/admin/schema.py": """
def schema():
    part = {"properties": {"c": {"type": "string"}}}
    own = {"properties": {"b": {"type": "object"}}, "type": "object"}
    parts = {"additionalProperties": part}
    return {"properties": {"a": {}, "paths": own, "partition_defaults": part, "partition": parts}}
""",
    "slurm_plugin/radd/service.py": """
from slurm_plugin.core import units
from slurm_plugin.core.first import first
def handle():
    first()
    return units.mib()  # told
""",
    "slurm_plugin/core/first.py": "from slurm_plugin.core.units import gib\ndef first(): return gib()\n",
    "slurm_plugin/core/units.py": "def mib(): pass\ndef gib(): pass\n",
}


@pytest.fixture
def house(tmp_path: Path) -> House:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    return House(tmp_path)


def test_figures(house: House) -> None:
    found = dict(house.counts())
    assert (found["files tracked"], found["words of the manual"]) == ("10", "6")
    assert (found["private words, manual"], found["private words, product"]) == ("1", "1"), (
        "names of tests are names"
    )
    assert found["keys of rad.toml"] == "3"
    assert found["slurm_plugin/core: files and folders, arrows, levels, cyclic"] == "2, 1, 2, 0"


def test_a_walk_returns_to_a_file_of_which_it_had_not_read_all(house: House) -> None:
    walk = Walk(house)
    walk.file("slurm_plugin/radd/service.py")
    first, service, units = (
        f"slurm_plugin/{name}.py" for name in ("core/first", "radd/service", "core/units")
    )
    assert (sorted(walk.met), walk.returns) == ([first, units, service], {(service, units): False})


def test_a_table_has_a_column_for_each_checkout(house: House) -> None:
    lines = table([house.root, house.root]).splitlines()
    assert {line.count("|") for line in lines} == {4}
