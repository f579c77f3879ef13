"""What was meant otherwise than it stands, put right: `# RAD model=a`, `#rad: model=a`, `#RAD model = a`, a script.

Whose lines these are, chooses how long they are: radd reads them for everybody, so nothing here looks twice at a
character, as a regular expression with a run of blanks would.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_NAME, _BLANK = "rad", " \t"
NO_SUMMARY = "a script, no summary; one is made by: rad-estimate --save m.rad -- python "
"""A Python script stands where a summary is named; its name follows."""


def as_directive(line: str, keys: Collection[str]) -> str | None:
    """Return the `#RAD` line that a comment was meant to be; None if it is a comment.

    Args:
        line: A line of a job script that is no `#RAD` line.
        keys: What such a line may say.

    >>> as_directive("# rad: batch_size = 8", ["model", "batch_size"])
    '#RAD batch_size=8'
    >>> as_directive("# RAD is not used here", ["model", "batch_size"]) is None
    True
    """
    text = line[1:].lstrip(_BLANK)
    words = text[len(_NAME) :].lstrip(_BLANK).removeprefix(":").lstrip(_BLANK)
    key, equals, _ = words.partition("=")
    if not text.lower().startswith(_NAME) or not equals or key.rstrip(_BLANK).lower() not in keys:
        return None
    return f"#RAD {closed_up(words)}"


def closed_up(words: str) -> str:
    """Return words without spaces around `=` and commas between them; as they are where anything is quoted.

    Args:
        words: What follows the mark.

    >>> closed_up(" model = a.txt, batch_size= 8 ")
    'model=a.txt batch_size=8'
    """
    if "'" in words or '"' in words:
        return words.strip()
    return re.sub(r",(?=\s|$)", "", "=".join(part.strip(_BLANK) for part in words.split("="))).strip()
