"""Count submissions accepted without a decision of radd, as reported by the Lua shim.

The causes: a busy machine on which radd misses the shim's 0.1 s, a radd that is away, a socket library that is
temporarily missing. Each such job passes through unchanged, and its user gets a message. The shim sends its count with
every submission that radd decides, so that an admin sees it, too (`rad doctor`, `rad metrics`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Undecided:
    """The counts reported by the shim so far.

    Attributes:
        total: Such submissions since radd started; None before a shim reported.
        grew_s: When it last increased, seconds since the epoch; None if it never did.
        last: The shim's last count, which starts at zero with each slurmctld.
    """

    total: int | None = None
    grew_s: float | None = None
    last: int = 0

    def with_count(self, count: object, *, now_s: float) -> Undecided:
        """Return the state after the shim's report; an invalid count changes nothing.

        Args:
            count: The field of its message. An older shim has none.
            now_s: Seconds since the epoch.

        >>> Undecided().with_count(0, now_s=10.0).with_count(3, now_s=20.0).with_count(3, now_s=30.0)
        Undecided(total=3, grew_s=20.0, last=3)
        >>> Undecided(3, 20.0, 3).with_count(1, now_s=40.0).with_count(0, now_s=50.0)  # slurmctld was restarted, twice
        Undecided(total=4, grew_s=40.0, last=0)
        """
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            return self
        more = count - self.last if count >= self.last else count
        return Undecided((self.total or 0) + more, now_s if more else self.grew_s, count)

    def as_answer(self, *, now_s: float) -> dict[str, Any]:
        """Return this state for radd's answer to a ping."""
        age_s = None if self.grew_s is None else round(max(0.0, now_s - self.grew_s))
        return {"undecided": self.total, "undecided_age_s": age_s}
