"""Trouble that may last is said once, and again when it comes back."""

from __future__ import annotations

from collections.abc import Callable


class Complaint:
    """What is wrong with one thing at present."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Begin with nothing wrong.

        Args:
            say: Takes a line for the log.
        """
        self._say = say
        self._wrong = ""

    def set(self, wrong: str) -> None:
        """Say what is wrong now, unless it was the last time; "" if nothing is.

        >>> told = []
        >>> complaint = Complaint(told.append)
        >>> for wrong in ("full", "full", "", "full"):
        ...     complaint.set(wrong)
        >>> told
        ['full', 'full']
        """
        if wrong and wrong != self._wrong:
            self._say(wrong)
        self._wrong = wrong
