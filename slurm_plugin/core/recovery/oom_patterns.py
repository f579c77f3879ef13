"""Find out-of-memory errors in a job's output, in time proportional to its length.

A job may print anything, and root reads it. So the shipped patterns are plain texts to be found in one line, in order;
nothing backtracks. oom_patterns.toml explains the form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from gpumemnet.records import frozen
from slurm_plugin.core.config import toml
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.files.regular import opened
from slurm_plugin.core.units import printed_size

SHIPPED_PATTERNS = Path(__file__).with_name("oom_patterns.toml")

EVIDENCE_BEFORE = 100
"""Characters of a long line that are shown before the texts that were found."""

_REGEX_LINE_LIMIT = 4000
_SIZE = re.compile(r"[\d.,]{1,20} ?[KMGT]?(?:i?B|bytes)")


@frozen
class OomPattern:
    """Pattern of one kind of OOM message.

    Attributes:
        name: The program or library that prints it.
        kind: Which memory ran out.
        words: Texts in one line, in this order; empty if there is an expression instead.
        at_line_start: Whether the first of them begins the line.
        size_after: Text before the size of the failed allocation; "" if the size is not printed.
        unless: A line that also contains this reports no failure; "" for none.
        regex: A site's own expression.
    """

    name: str
    kind: Literal["gpu", "host"]
    words: tuple[str, ...] = ()
    at_line_start: bool = False
    size_after: str = ""
    unless: str = ""
    regex: re.Pattern[str] | None = None


@frozen
class OomMatch:
    """The last line of an output that matches a pattern.

    Attributes:
        pattern: The pattern.
        start: Where the line begins in the text that was searched.
        line: The line, starting at most EVIDENCE_BEFORE characters before the texts.
        attempted_bytes: The failed allocation; None if the line does not state it.
    """

    pattern: OomPattern
    start: int
    line: str
    attempted_bytes: int | None


def load_patterns(paths: Iterable[Path] = (SHIPPED_PATTERNS,)) -> tuple[OomPattern, ...]:
    """Return the patterns of these files, in their order; a missing file is skipped.

    Raises:
        ConfigError: A file is not TOML of the expected form, or a pattern not a regular expression.
    """
    found: list[OomPattern] = []
    for path in paths:
        try:
            with open(path, encoding="utf-8", opener=opened) as file:
                text = file.read()
            tree = toml.loads(text)
        except FileNotFoundError:
            continue
        except toml.TOMLDecodeError as exc:
            from slurm_plugin.core.config import lines  # not at the top: a hook loads this file

            raise lines.not_toml(exc, text, str(path)) from exc
        except (OSError, ValueError) as exc:
            raise ConfigError(f"{path}: {exc}") from exc
        rows = tree.get("pattern", ())
        if not isinstance(rows, list | tuple):
            raise ConfigError(f"{path}: patterns are written as [[pattern]]")
        found.extend(_pattern(row, path) for row in rows)
    return tuple(found)


def last_found(texts: Sequence[str], patterns: Sequence[OomPattern]) -> OomMatch | None:
    """Return the last line that reports an OOM, with the size that it or an earlier one names.

    Args:
        texts: The last part of each output file; a later file counts as later.
        patterns: What to look for; the first that matches a line names it.
    """
    text = "\n" + "\n".join(texts).replace("\r", "\n") + "\n"  # progress bars return to the line's start
    found = [one for pattern in patterns if (one := _last_of(text, pattern)) is not None]
    if not found:
        return None
    last = max(found, key=lambda one: one.start)  # of equal ones the first, so the order of patterns counts
    sizes = [one for one in found if one.attempted_bytes is not None]
    if last.attempted_bytes is not None or not sizes:
        return last
    nearest = max(sizes, key=lambda one: one.start)
    return OomMatch(
        pattern=last.pattern, start=last.start, line=last.line, attempted_bytes=nearest.attempted_bytes
    )


def _last_of(text: str, pattern: OomPattern) -> OomMatch | None:
    """Return the last line that matches one pattern; each line is checked once, from the last one back."""
    if pattern.regex is not None:
        return _last_by_regex(text, pattern, pattern.regex)
    if any(word not in text for word in pattern.words):
        return None
    rarest = min(pattern.words, key=text.count)
    end = len(text)
    while (at := text.rfind(rarest, 0, end)) >= 0:
        start, stop = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        first = _in_order(text, start, stop, pattern)
        if first is not None and not (pattern.unless and text.find(pattern.unless, start, stop) >= 0):
            line = text[max(start, first - EVIDENCE_BEFORE) : stop]
            size = _size_in(text, first, stop, pattern.size_after)
            return OomMatch(pattern=pattern, start=start, line=line, attempted_bytes=size)
        end = start
    return None


def _in_order(text: str, start: int, stop: int, pattern: OomPattern) -> int | None:
    """Return where a pattern's texts begin in a line; None if they are not all there in order."""
    first, at = None, start
    for word in pattern.words:
        at = text.find(word, at, stop)
        if at < 0 or (first is None and pattern.at_line_start and at != start):
            return None
        first = at if first is None else first
        at += len(word)
    return first


def _size_in(text: str, start: int, stop: int, size_after: str) -> int | None:
    at = text.find(size_after, start, stop) if size_after else -1
    match = _SIZE.match(text, at + len(size_after), stop) if at >= 0 else None
    return None if match is None else printed_size(match[0])


def _last_by_regex(text: str, pattern: OomPattern, regex: re.Pattern[str]) -> OomMatch | None:
    stop = len(text)
    while stop > 0:
        start = text.rfind("\n", 0, stop) + 1
        match = regex.search(text[start : min(stop, start + _REGEX_LINE_LIMIT)])
        if match is not None:
            line = text[start + max(0, match.start() - EVIDENCE_BEFORE) : stop]
            size = printed_size(match.groupdict().get("attempted"))
            return OomMatch(pattern=pattern, start=start, line=line, attempted_bytes=size)
        stop = start - 1
    return None


def _pattern(row: Any, path: Path) -> OomPattern:
    try:
        if row["kind"] not in ("gpu", "host"):
            raise ConfigError(f"{path}: kind is {row['kind']!r}; it must be one of gpu, host")
        words = row.get("words", [])
        regex = row.get("regex")
        texts = isinstance(words, list) and all(isinstance(word, str) and word for word in words)
        if bool(words) == bool(regex) or not texts:
            raise TypeError("either words, a list of texts, or regex")
        return OomPattern(
            name=str(row["name"]),
            kind=row["kind"],
            words=tuple(words),
            at_line_start=bool(row.get("at_line_start", False)),
            size_after=str(row.get("size_after", "")),
            unless=str(row.get("unless", "")),
            regex=re.compile(regex) if regex else None,
        )
    except (KeyError, TypeError, AttributeError, re.error) as exc:
        raise ConfigError(
            f"{path}: a pattern needs name, kind and words or a regular expression ({exc})"
        ) from exc
