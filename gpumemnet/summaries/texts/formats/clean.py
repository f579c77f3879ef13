"""Extract a summary from the output of a terminal, a launcher or a logger.

A summary is often saved by redirecting a whole run. The number of lines is kept, so that messages name the line of the
user's file; a clean text is returned unchanged.
"""

from __future__ import annotations

import itertools
import re

from gpumemnet.summaries.texts.formats.prefixes import ROOT, without_prefixes

_ESCAPE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])"
"""Colours, cursor movements and window titles (ECMA-48: CSI, OSC and two-character sequences). This and other rarely
used patterns are compiled when first needed."""

_TAG = r"</?[a-z][^<>]{0,300}>"
_UNSEEN = (("\xa0", " "), ("\u200b", ""), ("\ufeff", ""), ("\x07", ""), ("\x08", ""), ("\x0f", ""))
"""Blanks of web pages, and characters that terminals do not show."""
CHILD = re.compile(r"^\s+\([^()]{1,80}\): ")
"""A module inside another, as `print(model)` shows it."""
_LOGICAL = re.compile(r"^\s*\([^()]{1,80}\): |^\s+\)")
_OPENS = r"^[A-Za-z_][\w.]{0,200} ?\($"
_COUNT_TAIL = r"^[\d, ]*(?:params|arams|rams|ams|ms|s)$"
"""The rest of ", 1,234 params", which annotated trees put at the end of each line."""
_RULE = re.compile(r"^[=_━─┏┓┗┛┳┻┡┩╇┼┴└┘├┤┬╋+ -]+$")
_ROW = re.compile(r"^[│|+ \t]*[├└+]─|-\d+ +\[")
_TREE = "├└+"
_SPOILT = r"^.{0,200}?(?=(?<![A-Za-z_\d.])[A-Za-z_][\w.<>]{0,200}(?: \([^()]{0,80}\))?: \d+-\d)"
"""A tree that was drawn in another encoding; the numbers at the end show the depth."""
_NARROWEST, _WIDEST = 40, 400
"""Columns of a terminal."""


def clean(source: str) -> str:
    """Return a text without escapes and prefixes, with lines that a terminal wrapped joined again.

    Returns:
        As many lines; those outside the summary may be empty.
    """
    if "\x1b" in source:
        source = re.sub(_ESCAPE, "", source)
    if "</pre>" in source:
        import html  # holds a large table

        source = html.unescape(re.sub(_TAG, "", source))
    if r"\u25" in source:
        source = re.sub(r"\\u(25[0-9a-f]{2})", lambda match: chr(int(match[1], 16)), source)
    for unseen, shown in _UNSEEN:
        source = source.replace(unseen, shown)
    lines = without_prefixes(source.splitlines())
    table = any("Layer (type" in line[:60] for line in lines)
    if table and "depth-idx" in source and not any(mark in source for mark in _TREE):
        lines = [re.sub(_SPOILT, "", line) for line in lines]
    return "\n".join(_joined(lines if table else _from_root(_without_others(lines)), table))


def following(lines: list[str]) -> list[str]:
    """Return the next non-empty line for each line, "" after the last."""
    below = ""
    found = [""]
    for line in lines[:0:-1]:
        below = line if line.strip() else below
        found.append(below)
    return found[::-1]


def _without_others(lines: list[str]) -> list[str]:
    """Empty the blocks `Name(` to `)` that hold no modules: an optimizer, transforms, arguments."""
    kept = list(lines)
    starts = [at for at, line in enumerate(lines) if re.match(_OPENS, line)]
    for start in starts:
        end = next((at for at in range(start + 1, len(lines)) if lines[at].startswith(")")), None)
        inside = lines[start + 1 : end]
        if end is not None and not any(map(CHILD.match, inside)):
            kept[start : end + 1] = [""] * (end + 1 - start)
    return kept


def _from_root(lines: list[str]) -> list[str]:
    """Remove the text before the root of `print(model)`: a prompt, the rest of a log."""
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    follows = following(lines)
    for at, line in enumerate(lines):
        match = None if _LOGICAL.match(line) else ROOT.search(line)
        if match is None:
            continue
        if at == first and match.start() == 0:
            return lines
        if follows[at].startswith(" "):
            return [""] * at + [match["root"]] + lines[at + 1 :]
    return lines


def _joined(lines: list[str], table: bool) -> list[str]:
    """Join lines that a terminal wrapped; the joined line replaces the first part."""
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
        if shorter and _RULE.match(line) and _RULE.match(below) and set(below) <= set(line):
            return len(line)
    return 0


def _widest(lines: list[str]) -> int:
    """Return the terminal's width if lines of `print(model)` continue in the next line; 0 if none does."""
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
