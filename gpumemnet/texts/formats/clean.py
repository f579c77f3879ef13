"""Take a summary out of what a terminal, a launcher or a logger put around it.

A summary is often saved by redirecting a whole run. Everything here keeps the number of lines, so that messages name
the line of the file that the user sees; a clean text comes back as it is.
"""

from __future__ import annotations

import itertools
import re

_ESCAPE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])"
"""Colours, cursor movements and window titles (ECMA-48: CSI, OSC and two-character sequences). This pattern and others
that few texts need are compiled when they are needed."""

_PREFIXES = (
    r"(?P<who>(?:> ?)+)",  # a quoted mail or issue
    r"(?P<who>\[(?:default|rank ?)?\d+\]):? ?",  # torchrun --tee, PyTorch's loggers
    r"(?P<who>\[\d+,\d+\]<std(?:out|err)>): ?",  # mpirun --tag-output
    r"(?P<who>\d{1,5}): ",  # srun --label
    r"(?P<who>\(\w{1,80} pid=\d+[^()]{0,80}\)) ",  # Ray
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S{0,12} [^│├└(]{0,80}?(?: - |: |\| |\] )",  # a logger
)
"""What stands before each line of a program's output; compiled where a text needs it."""
_BEGINNINGS = frozenset(">[(")
"""Each of them begins with one of these or a digit: most texts are told by that alone."""

_MOST = 0.5
"""A prefix counts as one if so many of the lines that hold anything begin with it."""

_ROOT = re.compile(r"(?:^|[\s:|\]>])(?P<root>[A-Za-z_][\w.]{0,200}\()\s*$")
CHILD = re.compile(r"^\s+\([^()]{1,80}\): ")
"""A module inside another, as `print(model)` shows it."""
_LOGICAL = re.compile(r"^\s*\([^()]{1,80}\): |^\s+\)")
_COUNT_TAIL = r"^[\d, ]*(?:params|arams|rams|ams|ms|s)$"
"""The rest of ", 1,234 params", which annotated trees put behind each line."""
_RULE = re.compile(r"^[=_━─┏┓┗┛┳┻┡┩╇┼┴└┘├┤┬╋+ -]+$")
_LATE_RULE = r"^.{0,200}?\w.{0,200}?\s(?P<rule>[=_━─-]{40,})$"
_RULE_ENDS = frozenset(("====", "____", "----"))
"""A rule ends with one of these; a row of torchinfo may end with two dashes."""
_ROW = re.compile(r"^[│|+ \t]*[├└+]─|-\d+ +\[")
_NARROWEST, _WIDEST = 40, 400
"""Columns of a terminal."""


def clean(source: str) -> str:
    """Return a text without escapes and prefixes, with lines that a terminal wrapped joined again.

    Args:
        source: What the user saved.

    Returns:
        As many lines; those that hold no part of the summary may be empty.
    """
    if "\x1b" in source:
        source = re.sub(_ESCAPE, "", source)
    lines = _without_prefix(source.splitlines())
    table = any("Layer (type" in line[:60] for line in lines)
    lines = (
        [_bare_rule(line) if line[-4:] in _RULE_ENDS else line for line in lines]
        if table
        else _from_root(lines)
    )
    return "\n".join(_joined(lines, table))


def _bare_rule(line: str) -> str:
    """Drop what a logger put before the first line of a table."""
    match = re.match(_LATE_RULE, line)
    return match["rule"] if match else line


def _without_prefix(lines: list[str]) -> list[str]:
    """Drop what stands before each line; of several processes, keep the one that speaks first."""
    filled = [line for line in lines if line.strip()]
    begun = [line for line in filled if line[0] in _BEGINNINGS or line[0].isdigit()]
    if len(begun) <= _MOST * len(filled):
        return lines
    for prefix in _PREFIXES:
        match_prefix = re.compile(prefix).match
        matches = [match_prefix(line) for line in lines]
        found = [match for match in matches if match]
        if not found or len(found) <= _MOST * len(filled):
            continue
        speakers = [match.groupdict().get("who", "").strip() for match in found]
        first = speakers[0]
        several = len(set(speakers)) > 1 and not first.startswith(">")
        return [
            line
            if match is None
            else line[match.end() :]
            if not several or match.groupdict().get("who", "").strip() == first
            else ""
            for line, match in zip(lines, matches, strict=True)
        ]
    return lines


def _from_root(lines: list[str]) -> list[str]:
    """Blank what stands before the root of `print(model)`: a prompt, the rest of a log."""
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    for at, line in enumerate(lines):
        match = None if _LOGICAL.match(line) else _ROOT.search(line)
        if match is None:
            continue
        if at == first and match.start() == 0:
            return lines
        if next((below for below in lines[at + 1 :] if below.strip()), "").startswith(" "):
            return [""] * at + [match["root"]] + lines[at + 1 :]
    return lines


def _joined(lines: list[str], table: bool) -> list[str]:
    """Join lines that a terminal wrapped; the joined line stands where the first part was."""
    width = _wrapped_rule(lines) if table else _widest(lines)
    if not width:
        return lines
    begins = _ROW if table else _LOGICAL
    joined = list(lines)
    start = 0
    for at in range(1, len(lines)):
        goes_on = table or _unclosed(joined[start]) or re.match(_COUNT_TAIL, lines[at])
        if len(lines[at - 1]) == width and goes_on and lines[at].strip() and not begins.search(lines[at]):
            joined[start] += lines[at]
            joined[at] = ""
        else:
            start = at
    return joined


def _wrapped_rule(lines: list[str]) -> int:
    """Return the terminal's width if a table's horizontal rule was wrapped; 0 if none was."""
    for line, below in itertools.pairwise(lines):
        shorter = _NARROWEST <= len(line) <= _WIDEST and len(below) < len(line)
        if shorter and _RULE.match(line) and _RULE.match(below):
            return len(line)
    return 0


def _widest(lines: list[str]) -> int:
    """Return the terminal's width if lines of `print(model)` go on in the next line; 0 if none does."""
    width = max(map(len, lines), default=0)
    if not _NARROWEST <= width <= _WIDEST:
        return 0
    goes_on = any(
        len(line) == width and below.strip() and not _LOGICAL.match(below) and _unclosed(line)
        for line, below in itertools.pairwise(lines)
    )
    return width if goes_on and any(map(CHILD.match, lines)) else 0


def _unclosed(line: str) -> bool:
    return line.count("(") > line.count(")")
