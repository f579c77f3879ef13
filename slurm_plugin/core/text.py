"""Make text from outside fit for one line of a log, a comment or a terminal."""

from __future__ import annotations

UNPRINTABLE = "?"


def one_line(text: str, limit: int) -> str:
    r"""Return text on one line: runs of white space become one space, what is not printable becomes "?".

    Not printable is what `str.isprintable` says: control characters (escape sequences of a terminal), marks that turn
    the direction of writing, halves of a surrogate pair, unassigned code points.

    Args:
        text: Output of a job or an error message of a program.
        limit: Most characters kept.

    >>> one_line("loss\x1b[2J 0.1\n\tdone", 80)
    'loss?[2J 0.1 done'
    """
    words = " ".join(text[: 8 * limit].split())[:limit]
    return (
        words if words.isprintable() else "".join(one if one.isprintable() else UNPRINTABLE for one in words)
    )
