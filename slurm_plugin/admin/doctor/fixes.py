"""Exact fixes for findings of `rad doctor`: lines of files and commands. Nothing is carried out here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.config.lines import places_in
from slurm_plugin.slurm.files.conf_lines import ConfFile, ConfLine, lines_of

_FIRST_PAIR = re.compile(r"\w+\s*=\s*[^\s\\]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange:
    """Replacement of lines in a file.

    Attributes:
        path: The file; it may not exist yet.
        first: The first line that is replaced, from 1; 0 appends at the end.
        count: Number of lines replaced; 0 inserts the new ones above line `first`.
        new: The new lines.
    """

    path: Path
    new: str
    first: int = 0
    count: int = 0

    def __str__(self) -> str:
        """Return the change as text for a person."""
        new = f"\n{self.new}" if "\n" in self.new else self.new
        gap = "" if new.startswith("\n") else " "
        if not self.first:
            return f"add to {self.path}:{gap}{new}"
        return f"{'' if self.count else 'above '}{self.path}:{self.first}:{gap}{new}"

    def applied(self, text: str) -> str:
        r"""Return the file's text after the change.

        >>> LineChange(path=Path("f"), first=2, count=1, new="B").applied("a\nb\nc\n")
        'a\nB\nc\n'
        """
        lines = lines_of(text)
        start = self.first - 1 if self.first else len(lines)
        lines[start : start + self.count] = lines_of(self.new)
        return "\n".join([*lines, ""])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """Command that fixes a finding.

    Attributes:
        argv: The command.
    """

    argv: tuple[str, ...]

    def __str__(self) -> str:
        """Return the command as text for a person and for a shell."""
        return f"run: {shlex.join(self.argv)}"


FixAction = LineChange | RunCommand


def command(text: str) -> RunCommand:
    """Return a command parsed from shell notation.

    >>> str(command("chmod 600 /etc/rad/key"))
    'run: chmod 600 /etc/rad/key'
    """
    return RunCommand(argv=tuple(shlex.split(text)))


def setting(conf: ConfFile | None, path: Path, name: str, value: str) -> LineChange:
    """Return the change that sets a setting.

    Args:
        conf: Current content of the file; None if there is none.
        path: The file, for a setting that is not set yet.
        name: The setting, as Slurm spells it.
        value: Its new value.
    """
    at = None if conf is None else conf.settings_at.get(name.lower())
    pair = f"{name}={value}"
    return _in_place(at, path, (at and _replaced(at.raw, name, pair)) or pair)


def record(conf: ConfFile, index: int, path: Path, key: str, value: str) -> LineChange:
    """Return the change that sets a key of a record.

    Args:
        conf: Current content of the file.
        index: Which of its records.
        path: The file, where the record's place is not known.
        key: The key, as Slurm spells it.
        value: Its new value.
    """
    at = conf.lines_at[index] if index < len(conf.lines_at) else None
    text = at.text if at else " ".join(f"{name}={old}" for name, old in conf.lines[index].items())
    pair = f"{key}={value}"
    if key.lower() not in conf.lines[index]:
        goes_on = at is not None and at.raw.strip() != text  # spans several lines, or has a trailing comment
        new = _FIRST_PAIR.sub(rf"\g<0> {pair}", at.raw, count=1) if at and goes_on else f"{text} {pair}"
        return _in_place(at, path, new)
    return _in_place(at, path, (at and _replaced(at.raw, key, pair)) or _replaced(text, key, pair) or text)


def toml(text: str, path: Path, table: str, key: str, value: str) -> LineChange:
    r"""Return the change that sets a key in a TOML file.

    Args:
        text: The file's text.
        path: The file.
        table: "features", "partition.gpu"; "" for the top.
        key: The key.
        value: Its value as TOML spells it.

    >>> print(toml('[a]\nx = 1\n[b]\nx = 2\n', Path("f"), "b", "x", "3"))
    f:4: x = 3
    """
    new = f"{key} = {value}"
    head = None if table else 0
    for number, now, name in places_in(text):
        if now == table and name == key:
            return LineChange(path=path, first=number, count=1, new=new)
        head = number if now == table and not name else head
    if head is None:
        return LineChange(path=path, new=f"[{table}]\n{new}")
    return LineChange(path=path, first=head + 1, new=new)


def shown(actions: Sequence[FixAction]) -> str:
    """Return all actions as text for a person, one per line."""
    return "\n".join(map(str, actions))


def _replaced(raw: str, key: str, pair: str) -> str | None:
    r"""Return lines with a key's value replaced by `pair`; None if the value continues on the next line.

    >>> _replaced("GresTypes = gpu   # GresTypes=none", "GresTypes", "GresTypes=gpu,shard")
    'GresTypes=gpu,shard   # GresTypes=none'
    """
    lines = raw.split("\n")
    for index, line in enumerate(lines):
        code, sign, comment = line.partition("#")
        found = re.search(rf"(?i)(?<!\w){re.escape(key)}\s*=\s*(\"[^\"]*\"|[^\s\\]*)", code)
        if found is None:
            continue
        if code[found.end() :].startswith("\\"):
            return None
        lines[index] = f"{code[: found.start()]}{pair}{code[found.end() :]}{sign}{comment}"
        return "\n".join(lines)
    return None


def _in_place(at: ConfLine | None, path: Path, new: str) -> LineChange:
    if at is None:
        return LineChange(path=path, new=new)
    return LineChange(path=at.path, first=at.first, count=at.last - at.first + 1, new=new)
