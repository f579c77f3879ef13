"""Split a directive into words: quoted as in a shell, each with its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpumemnet.errors import DirectiveError


class WordPlace(NamedTuple):
    """Place of a word, for the error.

    Attributes:
        path: The script's path, or "comment".
        line: Its line; None in a comment.
    """

    path: str
    line: int | None

    def error(self, problem: str, fix: str) -> DirectiveError:
        """Return the error that names this place.

        Args:
            problem: The problem.
            fix: The fix.
        """
        return DirectiveError(path=self.path, line=self.line, problem=problem, fix=fix)


def until_space(text: str) -> str:
    """Return the text up to the first space outside quotes."""
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


def split(text: str, separators: str, place: WordPlace) -> Iterator[str]:
    """Split at separators outside quotes; remove the quotes; a word that starts with # begins a comment.

    As in a shell, a backslash inside double quotes escapes a double quote or a backslash.

    Args:
        text: The text after the mark.
        separators: Characters that end a word.
        place: Its place, for the error.

    Raises:
        DirectiveError: A quote is not closed.
    """
    word, quote, started, escaped = "", "", False, False
    for letter in text:
        if quote:
            piece, quote, escaped = _quoted(letter, quote, escaped)
            word += piece
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


def _quoted(letter: str, quote: str, escaped: bool) -> tuple[str, str, bool]:
    """Return what a letter inside quotes adds, the quote that is still open, and whether the next letter is escaped."""
    if escaped:
        return letter if letter in '"\\' else f"\\{letter}", quote, False
    if letter == quote:
        return "", "", False
    if letter == "\\" and quote == '"':
        return "", quote, True
    return letter, quote, False
