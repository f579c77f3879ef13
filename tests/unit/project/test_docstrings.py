"""Public functions say what their arguments are; ruff's D417 sees that none of them is left out."""

from __future__ import annotations

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted(
    path
    for package in ("gpumemnet", "slurm_plugin", "prolog", "epilog")
    for path in (ROOT / package).rglob("*.py")
)
LEAST = 2
"""Of one argument the first line shows."""
ELSEWHERE = "rguments as for `", "rguments and errors as for `"
"""Where a twin's docstring shows them."""


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public(node.body, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield prefix + node.name, node


def is_command(function: ast.FunctionDef) -> bool:
    """Of a command the docstring is what --help prints, and the options have texts of their own."""
    return any("command" in ast.unparse(decorator) for decorator in function.decorator_list)


def silent(source: str) -> list[str]:
    """Return the public functions of a module whose docstrings leave their arguments out."""
    found = []
    for name, function in public(ast.parse(source).body):
        arguments = function.args
        names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        reported = ast.get_docstring(function)
        if reported is None:  # ruff's D103 allows it where a stub says it (nvml_binding.py)
            continue
        many = len([each for each in names if each not in ("self", "cls")]) >= LEAST
        if (
            many
            and "Args:" not in reported
            and not any(word in reported for word in ELSEWHERE)
            and not is_command(function)
        ):
            found.append(name)
    return found


def test_public_functions_tell_their_arguments() -> None:
    found = {str(path.relative_to(ROOT)): silent(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {name: functions for name, functions in found.items() if functions} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('def f(a, b):\n    """Do it."""', ["f"]),
        ('class C:\n    def f(self, a, *, b):\n        """Do it."""', ["C.f"]),
        ('class C:\n    def f(self, a):\n        """Do it."""', []),
        ('def _f(a, b):\n    """Do it."""', []),
        ('def f(a, b):\n    """Do it.\n\n    Args:\n        a: One.\n        b: Two.\n    """', []),
        ('@main.command()\ndef f(a, b):\n    """Help."""', []),
        ('def f(a, b):\n    """Do it; arguments as for `g`."""', []),
    ],
)
def test_what_counts_as_silent(source: str, found: list[str]) -> None:
    assert silent(source) == found


EXAMPLES = [
    path
    for path in (*SOURCES, *sorted((ROOT / "lab").rglob("*.py")), *sorted((ROOT / "tools").rglob("*.py")))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_of_the_docstrings_are_true(path: Path) -> None:
    try:
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    except ModuleNotFoundError as exc:
        pytest.skip(f"needs {exc.name}")
    found = doctest.testmod(module)
    assert found.attempted and not found.failed
