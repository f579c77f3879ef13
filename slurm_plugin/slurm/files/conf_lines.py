"""Parse Slurm's configuration files: lines as slurmctld reads them, settings, and lines of KEY=VALUE pairs.

Source: slurm.conf(5), gres.conf(5): names are case-insensitive, `#` begins a comment, a backslash at the end continues
on the next line (not in a comment, according to src/common/parse_config.c), `Include` includes another file, where `%c`
in the file name is the cluster's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice, product
from pathlib import Path

from gpumemnet.records import field, frozen

_PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S*)")
_INCLUDE = re.compile(r"include\s+(\S+)", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)#")
_RANGE = re.compile(r"\[([0-9,-]+)\]")
_BOUNDS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_RECORDS = {"nodename", "nodeset", "partitionname", "name"}
_DEEPEST = 8
_MOST_NAMES = 4096

Read = Callable[[Path], str]
"""Returns a file's text; OSError if it cannot be read."""


def text_of(path: Path) -> str:
    """Return a file's text, its lines ended by a newline alone; bytes that are not UTF-8 are kept, see `bytes_of`.

    Raises:
        OSError: It cannot be read.
    """
    return path.read_bytes().decode("utf-8", errors="surrogateescape").replace("\r\n", "\n")


def lines_of(text: str) -> list[str]:
    r"""Return a text's lines as Slurm reads them: a form feed or another line end of Unicode does not end a line.

    >>> lines_of("a\fb\nc\n"), lines_of("")
    (['a\x0cb', 'c'], [])
    """
    return text.removesuffix("\n").split("\n") if text else []


def bytes_of(text: str, like: bytes = b"") -> bytes:
    r"""Return the bytes of a file from its text, as the inverse of `text_of`.

    Args:
        text: Its text.
        like: Its bytes before a change: each line that is still there ends as there, a new one as most lines there.

    >>> bytes_of("a\nB\nc\n", b"a\r\nb\r\nc\n")
    b'a\r\nB\r\nc\n'
    """
    new = text.encode("utf-8", errors="surrogateescape")
    if b"\r\n" not in like:
        return new
    import difflib  # not at the top: hooks load quickly

    old = like.split(b"\n")
    usual = b"\r" if 2 * like.count(b"\r\n") > like.count(b"\n") else b""
    lines, plain = new.split(b"\n"), [line.removesuffix(b"\r") for line in old]
    ends = [usual] * (len(lines) - 1) + [b""]
    for same in difflib.SequenceMatcher(None, plain, lines, autojunk=False).get_matching_blocks():
        for step in range(same.size):
            ends[same.b + step] = old[same.a + step][len(plain[same.a + step]) :]
    return b"\n".join(line + end for line, end in zip(lines, ends, strict=True))


@frozen
class ConfLine:
    """A line as Slurm reads it.

    Attributes:
        text: Its text, with continuation lines joined, without comment.
        path: The file that contains it, which another one may include.
        first: Number of its first line there, from 1.
        last: Number of its last line.
        raw: These lines unchanged, with comments.
    """

    text: str
    path: Path
    first: int
    last: int
    raw: str = ""


@frozen
class ConfFile:
    """One file.

    Attributes:
        settings: NAME=VALUE lines, names in lower case; the last one counts.
        lines: Lines that begin with a record (`NodeName=`, `NodeSet=`, `PartitionName=`, or `Name=` in gres.conf).
        repeated: All values of settings that occur more than once, in order.
        settings_at: The line of each setting.
        lines_at: The line of each record, in the order of `lines`.
    """

    settings: dict[str, str] = field(default_factory=dict)
    lines: tuple[dict[str, str], ...] = ()
    repeated: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    settings_at: dict[str, ConfLine] = field(default_factory=dict, compare=False)
    lines_at: tuple[ConfLine, ...] = field(default=(), compare=False)


def read_conf(path: Path, read: Read = text_of) -> ConfFile | None:
    """Return the content of a file and the files that it includes; None if it cannot be read.

    Args:
        path: The file.
        read: Returns the text of a file.
    """
    try:
        found = list(_lines(path, read, depth=0))
    except OSError:
        return None
    settings: dict[str, str] = {}
    values: dict[str, list[str]] = {}
    settings_at: dict[str, ConfLine] = {}
    records: list[tuple[dict[str, str], ConfLine]] = []
    for line in found:
        pairs = pairs_of(line.text)
        if _RECORDS & set(pairs):
            records.append((pairs, line))
        else:
            one = settings_in([line.text])
            settings |= one
            for name, value in one.items():
                values.setdefault(name, []).append(value)
            settings_at |= dict.fromkeys(one, line)
    return ConfFile(
        settings=settings,
        repeated={name: tuple(each) for name, each in values.items() if len(each) > 1},
        lines=tuple(pairs for pairs, _ in records),
        settings_at=settings_at,
        lines_at=tuple(line for _, line in records),
    )


def read_lines(path: Path, read: Read = text_of) -> list[str] | None:
    """Return the lines of a file and of those that it includes, continuation lines joined, without comments.

    None if the file cannot be read; an included one that cannot be read is left out.

    Args:
        path: The file.
        read: Returns the text of a file.
    """
    try:
        return [line.text for line in _lines(path, read, depth=0)]
    except OSError:
        return None


def settings_in(lines: list[str]) -> dict[str, str]:
    """Return the settings of lines with one setting each, names in lower case; the last one counts.

    >>> settings_in(["GresTypes = gpu,shard", "nonsense"])
    {'grestypes': 'gpu,shard'}
    """
    parts = (line.partition("=") for line in lines)
    return {name.strip().lower(): value.strip().strip('"') for name, sign, value in parts if sign}


def pairs_of(line: str) -> dict[str, str]:
    """Return the KEY=VALUE pairs of a line, keys in lower case.

    >>> pairs_of('NodeName=n1 CPUs = 4 Gres="gpu:4"')
    {'nodename': 'n1', 'cpus': '4', 'gres': 'gpu:4'}
    """
    return {name.lower(): value.strip('"') for name, value in _PAIR.findall(line)}


def expand(text: str) -> tuple[str, ...]:
    """Return the names that Slurm's short form stands for.

    >>> expand("/dev/nvidia[0-2,7]"), expand("n[08-10]"), expand("one,two")
    (('/dev/nvidia0', '/dev/nvidia1', '/dev/nvidia2', '/dev/nvidia7'), ('n08', 'n09', 'n10'), ('one', 'two'))
    """
    names = (name for part in re.split(r",(?![^\[]*\])", text) for name in _names(part))
    return tuple(islice(names, _MOST_NAMES))


def _names(part: str) -> Iterator[str]:
    """Return the names that one part stands for; an invalid range stays unchanged."""
    pieces = _RANGE.split(part)
    choices = [_numbers(piece) if at % 2 else [piece] for at, piece in enumerate(pieces)]
    return ("".join(chosen) for chosen in product(*choices))


def _numbers(ranges: str) -> list[str]:
    found: list[str] = []
    for one in ranges.split(","):
        match = _BOUNDS.fullmatch(one)
        if match is None:
            return [f"[{ranges}]"]
        first, last = match[1], match[2] or match[1]
        found += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)[:_MOST_NAMES]]
    return found[:_MOST_NAMES]


def _lines(path: Path, read: Read, *, depth: int, cluster: str = "%c") -> Iterator[ConfLine]:
    raw = lines_of(read(path))
    number = 0
    while number < len(raw):
        first, text, goes_on = number + 1, "", True
        while goes_on and number < len(raw):
            code = _COMMENT.split(raw[number], maxsplit=1)[0].rstrip()  # first, so that no comment continues
            goes_on = code.endswith("\\")
            text += code.removesuffix("\\")
            number += 1
        text = text.strip()
        if text.lower().startswith("clustername"):
            cluster = text.partition("=")[2].strip().strip('"')
        if include := _INCLUDE.match(text):
            if depth < _DEEPEST:
                with suppress(OSError):
                    inner = path.parent / include[1].replace("%c", cluster)
                    yield from _lines(inner, read, depth=depth + 1, cluster=cluster)
        elif text:
            as_written = "\n".join(raw[first - 1 : number])
            yield ConfLine(text=text, path=path, first=first, last=number, raw=as_written)
