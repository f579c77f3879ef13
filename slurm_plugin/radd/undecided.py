"""Submissions that went on without an answer of radd's: the shim counts them, since radd does not hear of them.

A machine so busy that radd misses the shim's 0.1 s, a radd that is away, a socket library that is missing for a while:
each such job goes on as it was submitted, and its user hears it. The shim tells its count with every submission that
radd does decide, so that an admin hears it, too (`rad doctor`, `rad metrics`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Undecided:
    """What the shim told last.

    Attributes:
        total: Since slurmctld loaded the shim; None before a shim told anything.
        grew_s: When radd last heard of more, seconds since the epoch; None if it never did.
    """

    total: int | None = None
    grew_s: float | None = None

    def told(self, total: object, *, now_s: float) -> Undecided:
        """Return what is known once the shim told a count; what is none changes nothing.

        Args:
            total: The field of its message. An older shim has none.
            now_s: Seconds since the epoch.

        >>> Undecided().told(0, now_s=10.0).told(3, now_s=20.0).told(3, now_s=30.0)
        Undecided(total=3, grew_s=20.0)
        >>> Undecided(3, 20.0).told(1, now_s=40.0)  # of a slurmctld that was restarted
        Undecided(total=1, grew_s=40.0)
        """
        if not isinstance(total, int) or isinstance(total, bool) or total < 0 or total == self.total:
            return self
        return Undecided(total, now_s if total else self.grew_s)

    def as_answer(self, *, now_s: float) -> dict[str, Any]:
        """Return what radd's answer to a ping says of it."""
        age_s = None if self.grew_s is None else round(max(0.0, now_s - self.grew_s))
        return {"undecided": self.total, "undecided_age_s": age_s}
