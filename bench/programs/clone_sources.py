"""Check out the repositories of programs.txt: python bench/programs/clone_sources.py SOURCES [--address FORMAT].

repositories.txt names them: folder, owner/name on GitHub, commit. Each goes to a folder of SOURCES; those that are
there stay. --address says where clones come from, with {owner} and {name}: a folder of mirrors does too.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).resolve().with_name("repositories.txt")


class Repository(NamedTuple):
    """One repository.

    Attributes:
        folder: Where programs.txt looks for it.
        owner: On GitHub.
        name: There.
        commit: That was tried.
    """

    folder: str
    owner: str
    name: str
    commit: str


def repositories(path: Path = LIST) -> Iterator[Repository]:
    """Yield the repositories of a list."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            folder, full_name, commit = line.split()
            owner, _, name = full_name.partition("/")
            yield Repository(folder, owner, name, commit)


def check_out(repository: Repository, address: str, folder: Path) -> None:
    """Make a folder of a repository's files at its commit.

    Args:
        repository: Which.
        address: Of its clone.
        folder: A new one.
    """
    commands = (
        ("init", "-q"),
        ("fetch", "-q", "--depth", "1", address, repository.commit),
        ("checkout", "-q", "FETCH_HEAD"),
    )
    folder.mkdir(parents=True)
    for command in commands:
        subprocess.run(["git", "-C", str(folder), *command], check=True)


def main() -> None:
    """Check out what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", type=Path)
    parser.add_argument("--address", default="https://github.com/{owner}/{name}")
    options = parser.parse_args()
    for repository in repositories():
        folder = options.sources / repository.folder
        if not folder.exists():
            address = options.address.format(owner=repository.owner, name=repository.name)
            check_out(repository, address, folder)


if __name__ == "__main__":
    main()
