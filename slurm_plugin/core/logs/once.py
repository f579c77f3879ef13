"""Log a lasting problem once, and again when it recurs."""

from __future__ import annotations

from collections.abc import Callable


class Complaint:
    """The present problem of one thing."""

    def __init__(self, log: Callable[[str], None]) -> None:
        """Begin with nothing wrong.

        Args:
            log: Takes a line for the log.
        """
        self._log = log
        self._wrong = ""

    def set(self, wrong: str) -> None:
        """Log the present problem unless it is the last one logged; "" if there is none.

        >>> shown = []
        >>> complaint = Complaint(shown.append)
        >>> for wrong in ("full", "full", "", "full"):
        ...     complaint.set(wrong)
        >>> shown
        ['full', 'full']
        """
        if wrong and wrong != self._wrong:
            self._log(wrong)
        self._wrong = wrong
