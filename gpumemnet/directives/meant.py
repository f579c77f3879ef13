"""What was meant otherwise than it stands, put right: `# RAD model=a`, `#rad: model=a`, `#RAD model = a`, a script."""

from __future__ import annotations

import re
from collections.abc import Iterable

NO_SUMMARY = "a script, no summary; one is made by: rad-estimate --save m.rad -- python "
"""A Python script stands where a summary is named; its name follows."""


def as_directive(line: str, keys: Iterable[str]) -> str | None:
    """Return the `#RAD` line that a comment was meant to be; None if it is a comment.

    Args:
        line: A line of a job script that is no `#RAD` line.
        keys: What such a line may say.

    >>> as_directive("# rad: batch_size = 8", ["model", "batch_size"])
    '#RAD batch_size=8'
    >>> as_directive("# RAD is not used here", ["model", "batch_size"]) is None
    True
    """
    mark = re.match(rf"#[ \t]*rad[ \t]*:?[ \t]*(?=({'|'.join(keys)})[ \t]*=)", line, re.IGNORECASE)
    return None if mark is None else f"#RAD {closed_up(line[mark.end() :])}"


def closed_up(words: str) -> str:
    """Return words without spaces around `=` and commas between them; as they are where anything is quoted.

    Args:
        words: What follows the mark.

    >>> closed_up(" model = a.txt, batch_size= 8 ")
    'model=a.txt batch_size=8'
    """
    if "'" in words or '"' in words:
        return words.strip()
    return re.sub(r",(?=\s|$)", "", re.sub(r"[ \t]*=[ \t]*", "=", words)).strip()
