"""Copy the sources of each distribution to a separate folder for a build.

So a build leaves no files in the checkout and includes none of an older build.

| distribution | holds |
|---|---|
| rad-slurm | what nodes, controllers and login nodes need, `rad-estimate` included |
| rad-slurm-train | training, evaluation, measurements; in the same folder gpumemnet/ |
| gpumemnet | for users' own environments: the tracer and the file it writes, as in rad-slurm |
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from slurm_plugin.core.config import toml

NODE, TRAIN, PROFILE = "rad-slurm", "rad-slurm-train", "gpumemnet"
TRAIN_FOLDER = Path("distributions") / "train"
PROFILE_FOLDER = Path("distributions") / "profile"

_NODE_SOURCES = (
    *("setup.cfg", "pyproject.toml", "README.md", "LICENSE"),
    *("slurm_plugin", "gpumemnet", "prolog", "epilog", "gres_conf"),
)
_TRAIN_SOURCES = (
    "LICENSE",
    *("gpumemnet/data", "gpumemnet/weights"),
    *(f"gpumemnet/learning/{name}" for name in ("dataset", "evaluate", "train")),
)
_PROFILE_SOURCES = (
    "LICENSE",
    *(f"gpumemnet/{name}.py" for name in ("__init__", "errors", "names", "records", "training", "units")),
    *("gpumemnet/py.typed", "gpumemnet/profile/__init__.py", "gpumemnet/profile/record.py"),
    *(
        "gpumemnet/gpu_memory",
        "gpumemnet/tracing/__init__.py",
        "gpumemnet/tracing/saved",
        "gpumemnet/tracing/trace",
    ),
)


def fallback_version(checkout: Path) -> str:
    """Return the version to build if no tag determines it."""
    tree = toml.loads((checkout / "pyproject.toml").read_text())
    version: str = tree["tool"]["setuptools_scm"]["fallback_version"]
    return version


def stage_node(checkout: Path, folder: Path) -> Path:
    """Copy the sources of rad-slurm without its history, and return the folder."""
    return _copied(checkout, folder, _NODE_SOURCES)


def stage_train(checkout: Path, folder: Path, *, version: str) -> Path:
    """Copy the sources of rad-slurm-train, and return the folder.

    Args:
        checkout: Source folder.
        folder: Target folder.
        version: Its version, and that of the rad-slurm it needs.
    """
    _copied(checkout, folder, _TRAIN_SOURCES)
    return _described(checkout / TRAIN_FOLDER, folder, version)


def stage_profile(checkout: Path, folder: Path, *, version: str) -> Path:
    """Copy the sources of gpumemnet, and return the folder; arguments as for `stage_train`."""
    _copied(checkout, folder, _PROFILE_SOURCES)
    return _described(checkout / PROFILE_FOLDER, folder, version)


def _described(description: Path, folder: Path, version: str) -> Path:
    """Add the metadata of a distribution, with its version filled in."""
    for path in description.iterdir():
        text = path.read_text(encoding="utf-8")
        (folder / path.name).write_text(text.replace("{{version}}", version), encoding="utf-8")
    return folder


def fingerprint(checkout: Path) -> str:
    """Return a hash of all that either distribution installs."""
    found = hashlib.sha256()
    for path in _files(checkout, (*_NODE_SOURCES, str(TRAIN_FOLDER))):
        found.update(f"{path.relative_to(checkout)}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _files(checkout: Path, names: Iterable[str]) -> list[Path]:
    found = []
    for name in names:
        path = checkout / name
        found += [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def _copied(checkout: Path, folder: Path, names: Iterable[str]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    for path in _files(checkout, names):
        target = folder / path.relative_to(checkout)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return folder
