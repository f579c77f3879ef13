"""What people read in a Python file: comments, docstrings and messages, without names.

codespell reads words, not code. `blanked` keeps a file's lines and columns, so that its findings name the right line.
"""

from __future__ import annotations

import io
import re
import shutil
import tokenize
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

_NAMES = re.compile(
    r"`[^`\n]*`|^[ \t]+[A-Za-z_*][\w, *]*:(?=\s)|^[ \t]*>>> .*|\{[^{}\n]*\}|\b\w*_\w*\b|\b[\w/]+\.\w+",
    re.MULTILINE,
)
"""Names in a text: in backticks, described attributes and arguments, doctests, replacement fields, with _ or a dot."""


def blanked(source: str) -> str:
    """Return a Python file with blanks in place of all code, of texts of one word, and of names in texts.

    >>> blanked('name = "it was named"  # here: `name` is a name')
    '        it was named   # here:        is a name'
    """
    lines = [[" "] * len(line) for line in source.splitlines()]
    for (row, column), text in _texts(source):
        for number, line in enumerate(_NAMES.sub(_blanks, text).split("\n")):
            start = column if number == 0 else 0
            lines[row - 1 + number][start : start + len(line)] = line
    return "\n".join("".join(line) for line in lines)


def _texts(source: str) -> Iterator[tuple[tuple[int, int], str]]:
    literals = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type in literals and len(token.string.split()) > 1):
            yield (
                token.start,
                re.sub(r"^[A-Za-z]{0,2}(\"\"\"|'''|\"|')|(\"\"\"|'''|\"|')$", _blanks, token.string),
            )


def _blanks(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def private_names(source: str, words: Collection[str]) -> list[tuple[int, str]]:
    """Return line and name of each name in a Python file that holds one of some words between underscores.

    >>> private_names("def told_once(count): return count", {"told"})
    [(1, 'told_once')]
    """
    if not any(word in source.lower() for word in words):
        return []
    return [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.NAME and not set(words).isdisjoint(token.string.lower().split("_"))
    ]


def write_prose(checkout: Path, packages: Sequence[str], folder: Path) -> None:
    """Write what people read in Python packages to files of the same names.

    Args:
        checkout: The sources.
        packages: Their folders with Python files.
        folder: Where to write; what is there goes.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for package in packages:
        for path in sorted((checkout / package).rglob("*.py")):
            copy = folder / path.relative_to(checkout)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(blanked(path.read_text()))
