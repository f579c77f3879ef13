"""What each distribution holds: rad-slurm for nodes, small; rad-slurm-train next to it; an sdist with everything."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from paths import CHECKOUT

from tools.release import USERS_PYTHONS, pythons
from tools.stage import fallback_version, stage_node, stage_profile, stage_train

pytestmark = pytest.mark.slow

PACKAGES = ("slurm_plugin", "gpumemnet", "prolog", "epilog")
MOST_BYTES = 1_360_000
"""Of the wheel that every node gets."""


def run(*argv: object, cwd: Path = CHECKOUT) -> str:
    env = {
        **os.environ,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tracked(*folders: str) -> set[str]:
    return set(run("git", "ls-files", *folders).splitlines())


def build_wheel(source: Path, out: Path) -> Path:
    options = ("-q", "--no-deps", "--no-build-isolation", "-w", out)
    run(sys.executable, "-m", "pip", "wheel", *options, source, cwd=out)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node")
    return build_wheel(stage_node(CHECKOUT, folder / "source"), folder)


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    version = fallback_version(CHECKOUT)
    return build_wheel(stage_train(CHECKOUT, folder / "source", version=version), folder)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profile")
    version = fallback_version(CHECKOUT)
    return build_wheel(stage_profile(CHECKOUT, folder / "source", version=version), folder)


def names_in(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def metadata_of(wheel: Path) -> str:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return archive.read(name).decode()


def test_top_levels(node: Path, train: Path) -> None:
    assert {name.partition("/")[0] for name in names_in(node)} == set(PACKAGES)
    assert {name.partition("/")[0] for name in names_in(train)} == {"gpumemnet"}


def test_a_node_gets_a_megabyte_and_nothing_to_train_with(node: Path) -> None:
    assert node.stat().st_size < MOST_BYTES
    training = (
        "gpumemnet/data",
        "gpumemnet/learning/dataset/",
        "gpumemnet/learning/train/",
        "gpumemnet/learning/evaluate/",
    )
    assert [name for name in names_in(node) if name.startswith(training)] == []


def test_both_together_hold_every_file_once(node: Path, train: Path) -> None:
    installed, alongside = names_in(node), names_in(train)
    assert installed & alongside == set()
    templates = {f"slurm_plugin/{name}" for name in tracked("gres_conf")}
    code = {name for name in tracked(*PACKAGES) if not name.endswith("/README.md")}  # of the checkout alone
    assert (code | templates) - (installed | alongside) == set()


def test_the_second_needs_the_first_in_the_same_version(node: Path, train: Path) -> None:
    version = fallback_version(CHECKOUT)
    assert f"\nVersion: {version}\n" in metadata_of(node)
    assert f"\nRequires-Dist: rad-slurm=={version}\n" in metadata_of(train)


def test_what_users_install_is_small_a_part_of_the_first_and_needs_nothing(node: Path, profile: Path) -> None:
    assert profile.stat().st_size < MOST_BYTES / 5
    assert names_in(profile) - names_in(node) == set()
    assert "\nRequires-Dist:" not in metadata_of(profile)
    assert "\nRequires-Python: >=3.9\n" in metadata_of(profile)


@pytest.mark.parametrize("version", USERS_PYTHONS)
def test_what_users_install_is_read_by_their_python(version: str, profile: Path, tmp_path: Path) -> None:
    """All but what needs torch is imported; a saved profile is written and read."""
    found = [path for number, path in pythons(os.environ, USERS_PYTHONS) if number == version and path]
    if not found:
        pytest.skip(f"no Python {version} here")
    zipfile.ZipFile(profile).extractall(tmp_path)
    code = (
        "import gpumemnet, gpumemnet.tracing.saved.choose, gpumemnet.tracing.saved.of_trace\n"
        "import gpumemnet.gpu_memory.cudnn.conv_layer\n"
        "from gpumemnet.names import Optimizer\n"
        "from gpumemnet.profile.record import ModelProfile, WORDS\n"
        "from gpumemnet.tracing.saved.record import SavedProfile\n"
        "numbers = dict.fromkeys(ModelProfile._fields, 1) | {k: v[0] for k, v in WORDS.items()}\n"
        "made = SavedProfile(profiles=(ModelProfile(**numbers),), batch_size=1, model='m', inputs=(), versions={})\n"
        "assert SavedProfile.from_text(made.to_text(), path='m.rad') == made\n"
        "assert f'{Optimizer.ADAM} {str(Optimizer.ADAM)}' == 'adam adam' and 'torch' not in __import__('sys').modules\n"
    )
    run(found[0], "-c", code, cwd=tmp_path)


def test_every_package_says_that_it_is_typed(node: Path) -> None:
    assert {f"{name}/py.typed" for name in PACKAGES} <= names_in(node)


def test_what_a_node_needs_is_pinned_by_hash() -> None:
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    needs = setup["options"]["install_requires"] + setup["options.extras_require"]["monitor"]
    lines = (CHECKOUT / "requirements" / "node.txt").read_text().splitlines()
    pinned = {line.partition("==")[0]: number for number, line in enumerate(lines) if "==" in line}
    wanted = {re.split("[>;]", line.strip())[0] for line in needs.splitlines() if line.strip()}
    assert wanted <= set(pinned)
    assert [name for name, number in pinned.items() if "--hash=sha256:" not in lines[number + 1]] == []


def test_an_sdist_holds_the_repository(tmp_path: Path) -> None:
    """Tests, manual, examples, change log: what a distribution's packager needs."""
    pytest.importorskip("setuptools_scm")
    source = tmp_path / "source"
    run("git", "clone", "-q", "--no-hardlinks", CHECKOUT, source)
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path)!r})"
    run(sys.executable, "-c", code, cwd=source)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set(run("git", "ls-files", cwd=source).splitlines()) - names == set()


def test_packages_are_listed_by_hand_in_one_of_both() -> None:
    listed: list[str] = []
    for path in (CHECKOUT / "setup.cfg", CHECKOUT / "distributions" / "train" / "setup.cfg"):
        setup = configparser.ConfigParser()
        setup.read(path)
        listed += setup["options"]["packages"].split()
    without_code = {"slurm_plugin.gres_conf", "gpumemnet.data", "gpumemnet.weights"}
    folders = {
        ".".join(path.parent.relative_to(CHECKOUT).parts)
        for package in PACKAGES
        for path in (CHECKOUT / package).rglob("__init__.py")
    }
    assert sorted(listed) == sorted(folders | without_code)
