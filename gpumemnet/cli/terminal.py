"""Print lines whose characters any terminal and pipe can take."""

from __future__ import annotations

import sys
from typing import TextIO

from gpumemnet.cli.invocation import PROGRAM

_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


def say(text: str) -> None:
    """Print a text on stdout at once, so that a reader that stopped is noticed here."""
    _write(sys.stdout, text)


def note(text: str) -> None:
    """Print a note on stderr."""
    _write(sys.stderr, f"{PROGRAM}: {text}")


def complain(*lines: str) -> None:
    """Print errors on stderr, one line each; on a terminal the program's name is red."""
    red, plain = (_RED, _PLAIN) if sys.stderr.isatty() else ("", "")
    for line in lines:
        _write(sys.stderr, f"{red}{PROGRAM}:{plain} {' '.join(line.split())}")


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
