"""Remove text around each line of a saved output: a launcher's rank, a logger's time, a quote, a frame.

There is no list of launchers and loggers: the summary shows its prefix. The text before its first characters, a table's
rule or a tree's root, also precedes the next lines, with other digits.
"""

from __future__ import annotations

import itertools
import re

from gpumemnet.summaries.texts.formats.text import MAX_LINE

_LOOKED_AT = 20
_MOST = 0.5
"""Share of the next non-empty lines that must begin with a prefix."""
_NESTED = 3
"""Maximum number of nested prefixes: a launcher's, a logger's, a quote's."""
_FARTHEST = 200
"""Maximum column at which a summary begins."""

ROOT = re.compile(r"(?:^|[\s:|\]>])(?P<root>[A-Za-z_][\w.]{0,200}\()\s*(?:[│|┃]|\S{1,80}\.py:\d{1,6})?\s*$")
"""First line of `print(model)`, after a prompt or log text; Rich appends frames or the call's place."""
_CHILD = r"\([^()]{1,80}\): "
_RULE = r"([=_━─-])\1{19,}|┏[━┳]+┓?"
_TIME = r"\d+(?:[-:./+TZ ]+\d+)+(?:,\d+)?"
"""Digits that do not identify a process."""
_FRAMES = frozenset("│|┃")
_LEAST_WIDTH = 4
"""Minimum number of columns; children of a tree are indented by two."""


def without_prefixes(lines: list[str]) -> list[str]:
    """Remove prefixes and suffixes of lines; of several processes, keep the first.

    Returns:
        As many lines; the same list if there are no prefixes.
    """
    for _ in range(_NESTED):
        bare = _without_outermost(lines)
        if bare is lines:
            break
        lines = bare
    return lines


def _without_outermost(lines: list[str]) -> list[str]:
    """Remove a prefix, and a frame's other side, that the summary's first line and the next ones have."""
    at, own = _first(lines)
    before, behind = lines[at][: own.start] if lines else "", lines[at][own.stop :] if lines else ""
    if not before.strip():
        return lines
    match_prefix = re.compile(_alike(before)).match
    found = [match_prefix(line) for line in lines]
    below = [
        match is not None
        for line, match in zip(lines[at + 1 :], found[at + 1 :], strict=True)
        if line.strip()
    ][:_LOOKED_AT]
    if not below or not below[0] or sum(below) <= _MOST * len(below):  # only one line has it
        return [*lines[:at], lines[at][own], *lines[at + 1 :]] if re.match(_RULE, lines[at][own]) else lines
    if behind.strip() in _FRAMES:
        lines = [line.rstrip().removesuffix(behind.strip()) for line in lines]
    return _of_the_first(lines, found, [_speaker(match[0]) if match else "" for match in found])


def _speaker(prefix: str) -> str:
    return " ".join(re.sub(_TIME, "", prefix).split())


def _first(lines: list[str]) -> tuple[int, slice]:
    """Return the line and the position where a summary begins: a table's rule or a tree's root."""
    for at, line in enumerate(lines):
        if "Layer (type" in line[:_FARTHEST]:
            for above in range(at - 1, max(at - 3, -1), -1):
                if rule := re.search(_RULE, lines[above][:MAX_LINE]):
                    return above, slice(*rule.span())
            break
    for at, (line, below) in enumerate(itertools.pairwise(lines)):
        if (root := ROOT.search(line)) and re.search(_CHILD, below):
            return at, slice(*root.span("root"))
    return 0, slice(0, 0)


def _alike(before: str) -> str:
    """Return a pattern of a prefix with any digits, or of the blanks that a logger puts below it."""
    core = before.rstrip()
    parts = filter(None, re.split(r"(\d+|\s+)", core))
    alike = "".join(
        r"\d+" if part.isdigit() else r"\s*" if not part.strip() else re.escape(part) for part in parts
    )
    alike = rf"\s*{alike}(?:{re.escape(before[len(core) :])}|\s*$)"
    return rf"{alike}| {{{len(before)}}}(?=\s+\(|\))" if len(before) >= _LEAST_WIDTH else alike


def _of_the_first(lines: list[str], found: list[re.Match[str] | None], sources: list[str]) -> list[str]:
    """Remove prefixes, and the lines of all processes but the first; line numbers identify no process."""
    first = next(name for name, match in zip(sources, found, strict=True) if match)
    several = (
        len({name for name in sources if name}) > 1 and sources.count(first) > 1 and not first.startswith(">")
    )
    return [
        line if match is None else line[match.end() :] if not several or name == first else ""
        for line, match, name in zip(lines, found, sources, strict=True)
    ]
