"""Slurm's own configuration files, as far as `rad doctor` reads them: settings, and lines of KEY=VALUE pairs.

Source: slurm.conf(5), gres.conf(5): names are case-insensitive, `#` begins a comment, a backslash at the end goes on
with the next line, `Include` takes in another file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S*)")
_RANGE = re.compile(r"^(.*?)\[([0-9,-]+)\](.*)$")
_DEEPEST = 8
_MOST_NAMES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfFile:
    """One file.

    Attributes:
        settings: NAME=VALUE lines, names in lower case; the last one counts.
        lines: Lines that begin with a record (`NodeName=`, `PartitionName=`, or `Name=` in gres.conf).
    """

    settings: dict[str, str] = field(default_factory=dict)
    lines: tuple[dict[str, str], ...] = ()


def read_conf(path: Path) -> ConfFile | None:
    """Return what a file and the files that it includes say; None if it cannot be read."""
    try:
        texts = list(_logical_lines(path, depth=0))
    except OSError:
        return None
    settings: dict[str, str] = {}
    lines: list[dict[str, str]] = []
    for text in texts:
        pairs = {name.lower(): value.strip('"') for name, value in _PAIR.findall(text)}
        if {"nodename", "partitionname", "name"} & set(pairs):
            lines.append(pairs)
        else:
            name, _, value = text.partition("=")
            settings[name.strip().lower()] = value.strip().strip('"')
    return ConfFile(settings=settings, lines=tuple(lines))


def expand(text: str) -> tuple[str, ...]:
    """Return the names in Slurm's short form.

    >>> expand("/dev/nvidia[0-2,7]"), expand("n[08-10]"), expand("one,two")
    (('/dev/nvidia0', '/dev/nvidia1', '/dev/nvidia2', '/dev/nvidia7'), ('n08', 'n09', 'n10'), ('one', 'two'))
    """
    found: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        match = _RANGE.match(part)
        if match is None:
            found.append(part)
            continue
        before, ranges, after = match.groups()
        for one in ranges.split(","):
            first, _, last = one.partition("-")
            numbers = range(int(first), int(last or first) + 1)[:_MOST_NAMES]
            found += [
                name for number in numbers for name in expand(f"{before}{number:0{len(first)}d}{after}")
            ]
    return tuple(found)


def _logical_lines(path: Path, *, depth: int) -> Iterator[str]:
    text = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    for raw in text.splitlines():
        line = raw.partition("#")[0].strip()
        words = line.split(maxsplit=1)
        if len(words) == 2 and words[0].lower() == "include" and depth < _DEEPEST:
            yield from _logical_lines(path.parent / words[1], depth=depth + 1)
        elif line:
            yield line
