"""Parse a user's directives: `#RAD key=value` lines in a script, or `rad:key=value,...` in a job's comment.

Like `#SBATCH`, a `#RAD` line starts in the first column and precedes the first command. Values with spaces are
quoted as in a shell. Standard library only: the submit path imports this.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from gpumemnet.directives.meant import as_comment, as_directive, closed_up, paired, quoted
from gpumemnet.directives.values import READERS, Confidence, short
from gpumemnet.directives.words import WordPlace, split, until_space
from gpumemnet.errors import DirectiveError
from gpumemnet.names import MpsServer, Optimizer, Policy, Precision
from gpumemnet.training import TrainingSetup

MARK = "#RAD"
COMMENT_MARK = "rad:"
_DOCUMENT = r"(?<!<)<<-?[ \t]*(['\"]?)\\?([A-Za-z_]\w*)\1"
"""Start of a shell's here document, with the line that ends it."""
_EXAMPLE = "#RAD model=FILE batch_size=N"
_SETTINGS = frozenset(("batch_size", "seq_len", "optimizer", "precision", "gradient_checkpointing", "gpus"))
"""Keys that are part of a TrainingSetup."""


class Directives(NamedTuple):
    """Directives of the user.

    Attributes:
        setup: The training setup; unstated settings have their defaults.
        model: Path of the model summary as written, or None.
        gpus: Number of GPUs if stated, else None.
        policy: The requested placement; None for the partition's default.
        memory_bytes: The memory stated by the user; None if not stated.
        retry: False if the user opted out of recovery.
        confidence: Share of jobs that the booking must be enough for, or `bound`; None for the partition's.
        mps_server: The requested MPS server; None for the partition's setting.
        path: Origin: the script's path, or "comment".
        line: Line of `model=`, or of the first directive; None in a comment.
    """

    setup: TrainingSetup
    model: str | None = None
    gpus: int | None = None
    policy: Policy | None = None
    memory_bytes: int | None = None
    retry: bool = True
    confidence: Confidence | None = None
    mps_server: MpsServer | None = None
    path: str = "comment"
    line: int | None = None


def parse_script(text: str, path: str) -> Directives | None:
    """Read the `#RAD` lines of a job script.

    Args:
        text: The script; a byte order mark and CRLF line ends are accepted.
        path: Its name, for messages.

    Returns:
        Their directives; None if there are none.

    Raises:
        DirectiveError: Lines are malformed, repeated, below the first command, or only resemble #RAD lines; all are
            reported.
    """
    if MARK.lower()[1:] not in text.lower():
        return None
    words: list[tuple[str, WordPlace]] = []
    wrong: list[DirectiveError] = []
    meant: list[DirectiveError] = []
    command_line = 0
    for number, line in _own_lines(text):
        if line.startswith(MARK):
            line = line.replace("\u00a0", " ")  # pasted from a page
        if line.rstrip() == MARK and not command_line:
            meant.append(
                WordPlace(path=path, line=number).error("no directive follows #RAD", f"write {_EXAMPLE}")
            )
        elif line.startswith(MARK) and line[len(MARK) : len(MARK) + 1] in ("", " ", "\t"):
            place = WordPlace(path=path, line=number)
            if command_line:
                problem, fix = (
                    "#RAD below the first command is not read",
                    f"move it above line {command_line}",
                )
                wrong.append(place.error(problem, fix))
                continue
            try:
                words.extend((word, place) for word in _words(line[len(MARK) :], place))
            except DirectiveError as exc:
                wrong.append(exc)
        elif not command_line and (right := as_directive(line.lstrip(), READERS)):
            meant.append(
                WordPlace(path=path, line=number).error(
                    "is a comment, no #RAD line", f"write {short(right, 200)}"
                )
            )
        elif not command_line and line.strip() and not line.lstrip().startswith("#"):
            command_line = number
    wrong = wrong if words or wrong else meant  # next to valid lines, one may well be a comment
    return _directives(words, path, wrong) if words or wrong else None


def _own_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines of a script by number; here documents (`<<EOF`) may contain job scripts and are skipped."""
    lines: list[tuple[int, str]] = []
    ends, since = "", 0
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        if ends and line.strip() == ends:
            del lines[since:]
            ends = ""
            continue
        lines.append((number, line))
        if not ends and not line.startswith("#") and (document := re.search(_DOCUMENT, line)):
            ends, since = document[2], len(lines)
    return lines


def _words(text: str, place: WordPlace) -> list[str]:
    """Return the words of one line.

    Raises:
        DirectiveError: A quote is not closed, or it is not key=value; the message gives the right form.
    """
    words = list(split(text, " \t", place))
    if any(word.startswith("=") or word.endswith(("=", ",")) for word in words):
        right = closed_up(text)
        if right.split() != words:
            raise place.error("no spaces around =, no commas", f"write #RAD {short(right, 200)}")
    if words and words[-1] == "\\":
        raise place.error(
            "a #RAD line does not continue on the next line", "begin that with #RAD too, and remove the \\"
        )
    if not all("=" in word for word in words):
        if pairs := paired(words, READERS):
            raise place.error("each key and its value are one word", f"write #RAD {short(pairs, 200)}")
        if name := quoted(words, READERS):
            raise place.error("a name with spaces is quoted", f"write #RAD {short(name, 200)}")
    return words


def parse_comment(text: str) -> Directives | None:
    """Parse `rad:key=value,key=value` in a job's comment; the user's other text is ignored.

    Returns:
        Its directives; None if it has no `rad:`.

    Raises:
        DirectiveError: It is malformed.
    """
    place = WordPlace(path="comment", line=None)
    start = _comment_start(text)
    if start is None:
        if right := as_comment(text, READERS):
            raise place.error("is no rad: directive", f"write {short(right, 200)}")
        return None
    directive = until_space(text[start:])
    if _comment_start(text[start + len(directive) :]) is not None:
        raise place.error("rad: is given twice", "keep one, with commas between its directives")
    words = [(word, place) for word in split(directive, ",", place)]
    if not words:
        right = as_comment(text[start - len(COMMENT_MARK) :], READERS) or "rad:model=FILE,batch_size=N"
        raise place.error("nothing follows rad:", f"write {short(right, 200)}")
    return _directives(words, "comment")


def _comment_start(text: str) -> int | None:
    at = text.find(COMMENT_MARK)
    while at > 0 and not text[at - 1].isspace():
        at = text.find(COMMENT_MARK, at + 1)
    return None if at < 0 else at + len(COMMENT_MARK)


def _directives(
    words: list[tuple[str, WordPlace]], path: str, wrong: list[DirectiveError] | None = None
) -> Directives:
    """Parse the words; report all their errors, and earlier ones, at once."""
    wrong = wrong or []
    values: dict[str, Any] = {}
    lines: dict[str, int | None] = {}
    for word, place in words:
        try:
            key, value = _pair(word, place)
            read = READERS[key](key, value, place)
            if key in lines:
                before = "" if lines[key] is None else f" (line {lines[key]})"
                raise place.error(f"{key} is given twice{before}", "keep one")
            lines[key] = place.line
            values[key] = read
        except DirectiveError as exc:
            wrong.append(exc)
    if wrong:
        raise DirectiveError.of_all(sorted(wrong, key=lambda each: each.line or 0))
    gpus: int | None = values.get("gpus")
    return Directives(
        model=values.get("model"),
        setup=TrainingSetup(
            batch_size=values.get("batch_size"),
            seq_len=values.get("seq_len"),
            optimizer=values.get("optimizer", Optimizer.ADAM),
            precision=values.get("precision", Precision.FP32),
            gradient_checkpointing=values.get("gradient_checkpointing", False),
            gpus=gpus or 1,
            stated=frozenset(values) & _SETTINGS,
        ),
        gpus=gpus,
        policy=values.get("policy"),
        memory_bytes=values.get("memory"),
        retry=values.get("retry", True),
        confidence=values.get("confidence"),
        mps_server=values.get("mps_server"),
        path=path,
        line=lines.get("model", words[0][1].line),
    )


def _pair(word: str, place: WordPlace) -> tuple[str, str]:
    """Return key and value of a word.

    Raises:
        DirectiveError: There is no such key, or no value.
    """
    key, equals, value = word.partition("=")
    if key not in READERS:
        import difflib  # only an error needs it

        begun = [name for name in READERS if name.startswith(key)]
        near = difflib.get_close_matches(key, READERS, n=1) or (begun if len(begun) == 1 else [])
        fix = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(READERS)}"
        raise place.error(f"unknown key '{short(key)}'", fix)
    if not equals or not value:
        raise place.error(f"{key} has no value", f"write {key}=VALUE with no spaces around =")
    return key, value
