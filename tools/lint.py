"""Checkers of `make lint`: those of the virtual environment, and others for shell scripts, Lua and alert rules."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.install import install_packages
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import find_program
from tools.prose import write_prose

TEXT_SUFFIXES = (".md", ".toml", ".yml", ".lua", ".sh", ".conf", ".cfg")
TYPED_PACKAGES = ("slurm_plugin", "gpumemnet", "prolog", "epilog", "lab", "tools")
PYTHON_PACKAGES = (*TYPED_PACKAGES, "bench", "examples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """A checker from the distribution, and the files it checks.

    Attributes:
        program: Its name.
        package: The Debian package that contains it.
        options: Arguments before the files.
        suffix: Suffix of the files it checks.
        skipped: Folders that it leaves out.
    """

    program: str
    package: str
    options: tuple[str, ...]
    suffix: str
    skipped: tuple[str, ...] = ()

    def files(self, checkout: Path) -> list[str]:
        """Return the files to check, relative to the checkout."""
        found = [
            path.relative_to(checkout)
            for path in sorted(checkout.rglob(f"*{self.suffix}"))
            if not any(part.startswith(".") for part in path.relative_to(checkout).parts)
        ]
        return [str(path) for path in found if path.parts[0] not in ("build", "dist", *self.skipped)]


CHECKERS = (
    # The templates of hooks are checked as rendered, under tests/golden/.
    Checker(program="shellcheck", package="shellcheck", options=(), suffix=".sh", skipped=("gres_conf",)),
    Checker(program="luacheck", package="lua-check", options=("--no-color", "-q"), suffix=".lua"),
    Checker(program="promtool", package="prometheus", options=("check", "rules"), suffix=".rules.yml"),
    Checker(program="promtool", package="prometheus", options=("test", "rules"), suffix=".rules.test.yml"),
)


def checks(venv: Path, checkout: Path, environment: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield every command of `make lint`; report each checker that is missing and cannot be installed here.

    Args:
        venv: The folder of the virtual environment's programs.
        checkout: The sources.
        environment: What apt needs of the caller's environment, such as proxies.
    """
    yield [str(venv / "ruff"), "check", "."]
    yield [str(venv / "ruff"), "format", "--check", "."]
    yield [str(venv / "mypy"), *TYPED_PACKAGES]
    write_prose(checkout, PYTHON_PACKAGES, checkout / ".rad" / "prose")
    yield [str(venv / "codespell"), *texts(checkout), ".rad/prose"]
    missing = dict.fromkeys(one.package for one in CHECKERS if not _has(one.program))
    install_packages(list(missing), environment)
    for one in CHECKERS:
        if _has(one.program):
            more = [".ci/run"] if one.suffix == ".sh" else []
            yield [find_program(one.program), *one.options, *one.files(checkout), *more]
        else:
            print(f"skipped: {one.program} is not here; install {one.package}", flush=True)


def texts(checkout: Path) -> list[str]:
    """Return the texts that codespell checks, less what setup.cfg has it skip."""
    found: Iterable[Path] = (checkout / "gres_conf").rglob("*.*")
    for suffix in TEXT_SUFFIXES:
        every = Checker(program="codespell", package="", options=(), suffix=suffix).files(checkout)
        found = itertools.chain(found, (checkout / name for name in every))
    return sorted({str(path.relative_to(checkout)) for path in found if path.is_file()})


def _has(program: str) -> bool:
    try:
        return os.access(find_program(program), os.X_OK)
    except CommandError:
        return False
