"""The wheel holds the four packages and their data, and nothing else."""

from __future__ import annotations

import configparser
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    out = tmp_path_factory.mktemp("wheel")
    source = tmp_path_factory.mktemp("source")
    # A copy: building in the checkout would leave build/ behind, and an old build/ would sneak into the wheel.
    subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "checkout-index", "-a", f"--prefix={source}/"],
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, source],
        check=True,
        timeout=300,
        capture_output=True,
    )
    (wheel,) = out.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_top_levels(wheel_names: set[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {
        "slurm_plugin",
        "gpumemnet",
        "prolog",
        "epilog",
    }


def test_every_source_file_is_in_the_wheel(wheel_names: set[str]) -> None:
    tracked = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "slurm_plugin", "gpumemnet", "prolog", "epilog"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.splitlines()
    shipped = {name for name in tracked if name.endswith((".py", ".lua", ".toml")) or "/weights/" in name}
    assert shipped - wheel_names == set()


def test_every_package_says_that_it_is_typed(wheel_names: set[str]) -> None:
    assert {f"{name}/py.typed" for name in ("slurm_plugin", "gpumemnet", "prolog", "epilog")} <= wheel_names


def test_packages_are_listed_by_hand() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    listed = set(setup["options"]["packages"].split())
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in ("slurm_plugin", "gpumemnet", "prolog", "epilog")
        for path in (ROOT / package).rglob("__init__.py")
    }
    assert listed == folders
