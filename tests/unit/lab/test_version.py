"""Which version comes out of a clone with tags, without, a shallow one, and an archive without git."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from slurm_plugin.core.process.run import run

CHECKOUT = Path(__file__).resolve().parents[3]
FILES = ("pyproject.toml", ".gitattributes", ".git_archival.txt")
AUTHOR = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> str:
    return run(["git", *AUTHOR, "-C", str(folder), *arguments], timeout_s=60).strip()


def version(folder: Path) -> str:
    argv = ["-W", "ignore", "-m", "setuptools_scm", "--config", str(folder / "pyproject.toml")]
    return run([sys.executable, *argv], timeout_s=60).strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository of two commits with this one's settings and no tag."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q")
    for name in FILES:
        shutil.copy(CHECKOUT / name, folder)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    git(folder, "commit", "-q", "--allow-empty", "-m", "two")
    return folder


def archive(clone: Path, folder: Path) -> Path:
    """Unpack what a forge gives for download."""
    folder.mkdir()
    git(clone, "archive", "-o", str(folder / "all.tar"), "HEAD")
    shutil.unpack_archive(folder / "all.tar", folder)
    return folder


def test_without_a_tag(clone: Path, tmp_path: Path) -> None:
    assert version(clone).startswith("0.1.0.dev2+g")
    git(tmp_path, "clone", "-q", "--depth", "1", clone.as_uri(), "shallow")
    assert version(tmp_path / "shallow").startswith("0.1.0.dev1+g")
    assert version(archive(clone, tmp_path / "archive")) == "0.1.0.dev0"


def test_a_release_is_its_tag(clone: Path, tmp_path: Path) -> None:
    git(clone, "tag", "-a", "v0.3.0", "-m", "v0.3.0")
    assert version(clone) == "0.3.0"
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", "v0.3.0", clone.as_uri(), "shallow")
    assert version(tmp_path / "shallow") == "0.3.0"
    assert version(archive(clone, tmp_path / "archive")) == "0.3.0"


def test_after_a_release_comes_the_next(clone: Path, tmp_path: Path) -> None:
    git(clone, "tag", "-a", "v0.3.0", "-m", "v0.3.0")
    git(clone, "commit", "-q", "--allow-empty", "-m", "three")
    assert version(clone).startswith("0.3.1.dev1+g")
    assert version(archive(clone, tmp_path / "archive")).startswith("0.3.1.dev1+g")
