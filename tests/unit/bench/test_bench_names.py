"""The programs behind the figures use names that exist: nothing else of them runs here.

A node has no data and no training code (rad-slurm-train), so that `make test-train` runs this file, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from paths import CHECKOUT

PACKAGES = ("gpumemnet", "slurm_plugin", "prolog", "epilog", "lab", "tools")
TRAIN_PARTS = ("gpumemnet.learning.dataset", "gpumemnet.learning.evaluate", "gpumemnet.learning.train")
HAS_TRAIN = find_spec("gpumemnet.learning.dataset") is not None
PROGRAMS = sorted(
    path for folder in ("bench", "examples", "docker") for path in (CHECKOUT / folder).rglob("*.py")
)


def names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield module and name of everything that a program imports from us; "" for a module as a whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def lacks(module: str, name: str) -> bool:
    """Return whether we have no such name; one that needs what is not installed here is taken for right."""
    if not HAS_TRAIN and module.startswith(TRAIN_PARTS):
        return False
    try:
        found = import_module(module)
        if name and not hasattr(found, name):
            import_module(f"{module}.{name}")
    except ModuleNotFoundError as exc:
        missing = str(exc.name)
        return missing.startswith(PACKAGES) and (HAS_TRAIN or not missing.startswith(TRAIN_PARTS))
    except ImportError:
        return True
    return False


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_a_program_imports_what_is_there(path: Path) -> None:
    used = {
        (module, name)
        for module, name in names(ast.parse(path.read_text(encoding="utf-8")))
        if module.split(".")[0] in PACKAGES
    }
    assert sorted(f"{module} {name}" for module, name in used if lacks(module, name)) == []


def test_a_name_that_moved_is_seen() -> None:
    assert lacks("slurm_plugin.core.ledger.ledger", "from_json") and lacks("slurm_plugin.core.nothing", "")
    assert not lacks("slurm_plugin.core.ledger.codec", "decode") and not lacks("slurm_plugin.core", "units")
