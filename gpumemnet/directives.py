"""What a user says about a job: `#RAD key=value` lines in its script, or `rad:key=value,...` in its comment.

Like `#SBATCH`, a `#RAD` line starts in the first column and stands above the first command. Values with spaces are
quoted as in a shell. Standard library only: the submit path imports this.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from gpumemnet.errors import DirectiveError
from gpumemnet.training import OPTIMIZERS, PRECISIONS, TrainingSetup
from gpumemnet.units import GIB, KIB, MIB

Policy = Literal["exclusive", "collocate"]
POLICIES: tuple[Policy, ...] = ("exclusive", "collocate")

MARK = "#RAD"
COMMENT_MARK = "rad:"
MAX_COUNT = 1 << 30
MAX_GPUS = 1024
_UNIT_BYTES = {"K": KIB, "M": MIB, "G": GIB, "T": GIB * KIB, "": MIB}
"""Slurm's spelling: a bare number is MiB, G means GiB."""
_YES = ("yes", "true", "on", "1")
_NO = ("no", "false", "off", "0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """What the user said.

    Attributes:
        model: Path of the model summary as written, or None.
        setup: How the model is trained; what was not said has its default.
        gpus: Number of GPUs if stated, else None.
        policy: How the job wants to be placed; None leaves it to the partition.
        memory_bytes: The need stated outright; None if not.
        retry: False if the user opted out of recovery.
        path: Where it was said: the script's path, or "comment".
        line: Line of `model=`, or of the first directive; None in a comment.
    """

    model: str | None = None
    setup: TrainingSetup
    gpus: int | None = None
    policy: Policy | None = None
    memory_bytes: int | None = None
    retry: bool = True
    path: str = "comment"
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a word stands, for the error."""

    path: str
    line: int | None

    def error(self, problem: str, fix: str) -> DirectiveError:
        return DirectiveError(path=self.path, line=self.line, problem=problem, fix=fix)


def parse_script(text: str, path: str) -> Directives | None:
    """Read the `#RAD` lines of a job script.

    Args:
        text: The script; a byte order mark and CRLF line ends do no harm.
        path: Its name, for messages.

    Returns:
        What they say; None if there are none.

    Raises:
        DirectiveError: A line is malformed, repeated, or stands below the first command.
    """
    if MARK not in text:
        return None
    words: list[tuple[str, _Place]] = []
    command_line = 0
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        if line.startswith(MARK) and line[len(MARK) : len(MARK) + 1] in ("", " ", "\t"):
            place = _Place(path=path, line=number)
            if command_line:
                raise place.error(
                    "#RAD below the first command is not read", f"move it above line {command_line}"
                )
            words.extend((word, place) for word in _split(line[len(MARK) :], " \t", place))
        elif not command_line and line.strip() and not line.lstrip().startswith("#"):
            command_line = number
    return _directives(words, path) if words else None


def parse_comment(text: str) -> Directives | None:
    """Read `rad:key=value,key=value` in a job's comment; the user's own text around it is left alone.

    Args:
        text: The comment.

    Returns:
        What it says; None if there is no `rad:` in it.

    Raises:
        DirectiveError: It is malformed.
    """
    place = _Place(path="comment", line=None)
    start = _comment_start(text)
    if start is None:
        return None
    words = [(word, place) for word in _split(_until_space(text[start:]), ",", place)]
    if not words:
        raise place.error("nothing follows rad:", "write rad:model=FILE,batch_size=N")
    return _directives(words, "comment")


def _comment_start(text: str) -> int | None:
    at = text.find(COMMENT_MARK)
    while at > 0 and not text[at - 1].isspace():
        at = text.find(COMMENT_MARK, at + 1)
    return None if at < 0 else at + len(COMMENT_MARK)


def _until_space(text: str) -> str:
    quote, escaped = "", False
    for at, letter in enumerate(text):
        if escaped:
            escaped = False
        elif quote:
            escaped = letter == "\\" and quote == '"'
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter.isspace():
            return text[:at]
    return text


def _split(text: str, separators: str, place: _Place) -> Iterator[str]:
    """Cut at separators outside quotes; drop the quotes; a word that starts with # begins a comment.

    As in a shell, a backslash inside double quotes keeps a double quote or a backslash as it is.
    """
    word, quote, started, escaped = "", "", False, False
    for letter in text:
        if escaped:
            word += letter if letter in '"\\' else f"\\{letter}"
            escaped = False
        elif quote:
            if letter == quote:
                quote = ""
            elif letter == "\\" and quote == '"':
                escaped = True
            else:
                word += letter
        elif letter in "'\"":
            quote, started = letter, True
        elif letter in separators:
            if started:
                yield word
            word, started = "", False
        elif letter == "#" and not started and "," not in separators:
            return
        else:
            word += letter
            started = True
    if quote:
        raise place.error("a quote is not closed", f"add the missing {quote}")
    if started:
        yield word


def _directives(words: list[tuple[str, _Place]], path: str) -> Directives:
    values: dict[str, Any] = {}
    lines: dict[str, int | None] = {}
    for word, place in words:
        key, equals, value = word.partition("=")
        if key not in _READERS:
            near = difflib.get_close_matches(key, _READERS, n=1)
            fix = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(_READERS)}"
            raise place.error(f"unknown key '{_short(key)}'", fix)
        if not equals or not value:
            raise place.error(f"{key} has no value", f"write {key}=VALUE with no spaces around =")
        if key in values:
            before = "" if lines[key] is None else f" (line {lines[key]})"
            raise place.error(f"{key} is given twice{before}", "keep one")
        values[key] = _READERS[key](key, value, place)
        lines[key] = place.line
    gpus: int | None = values.get("gpus")
    return Directives(
        model=values.get("model"),
        setup=TrainingSetup(
            batch_size=values.get("batch_size"),
            seq_len=values.get("seq_len"),
            optimizer=values.get("optimizer", "adam"),
            precision=values.get("precision", "fp32"),
            gradient_checkpointing=values.get("gradient_checkpointing", False),
            gpus=gpus or 1,
        ),
        gpus=gpus,
        policy=values.get("policy"),
        memory_bytes=values.get("memory"),
        retry=values.get("retry", True),
        path=path,
        line=lines.get("model", words[0][1].line),
    )


def _short(value: str) -> str:
    return value if len(value) <= 30 else f"{value[:27]}..."


def _count(key: str, value: str, place: _Place) -> int:
    limit = MAX_GPUS if key == "gpus" else MAX_COUNT
    if value.isascii() and value.isdigit() and len(value) < 12 and 0 < int(value) <= limit:
        return int(value)
    raise place.error(f"{key}={_short(value)} is impossible", f"give a whole number from 1 to {limit}")


def _flag(key: str, value: str, place: _Place) -> bool:
    if value.lower() in _YES + _NO:
        return value.lower() in _YES
    raise place.error(f"{key}={_short(value)} is neither yes nor no", f"write {key}=yes or {key}=no")


def _one_of(names: tuple[str, ...]) -> Callable[[str, str, _Place], str]:
    def read(key: str, value: str, place: _Place) -> str:
        if value in names:
            return value
        near = difflib.get_close_matches(value.lower(), names, n=1)
        fix = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(names)}"
        raise place.error(f"unknown {key} '{_short(value)}'", fix)

    return read


def _memory(key: str, value: str, place: _Place) -> int:
    number = value.upper().removesuffix("B").removesuffix("I")
    unit = number[-1:] if number[-1:] in _UNIT_BYTES and not number[-1:].isdigit() else ""
    digits = number.removesuffix(unit)
    if digits.isascii() and digits.isdigit() and len(digits) < 10 and int(digits):
        return int(digits) * _UNIT_BYTES[unit]
    raise place.error(f"{key}={_short(value)} is not an amount of memory", "write for example memory=12G")


def _text(key: str, value: str, place: _Place) -> str:
    if "\0" in value:
        raise place.error(f"{key} holds a zero byte", "remove it")
    return value


_READERS: dict[str, Callable[[str, str, _Place], Any]] = {
    "model": _text,
    "batch_size": _count,
    "seq_len": _count,
    "optimizer": _one_of(OPTIMIZERS),
    "precision": _one_of(PRECISIONS),
    "gradient_checkpointing": _flag,
    "gpus": _count,
    "policy": _one_of(POLICIES),
    "memory": _memory,
    "retry": _flag,
}
