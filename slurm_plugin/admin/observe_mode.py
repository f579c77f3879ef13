"""Sum up what observe mode would have done, from radd's log of decisions."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from slurm_plugin.core.files.append_log import NewLines
from slurm_plugin.core.logs.events import EventKind, from_line

_DECISION = re.compile(r" decision=observe:-(shared|whole|refused|unchanged)\b")
_WORDS = {
    "shared": "would have shared a GPU",
    "whole": "would have got whole GPUs",
    "unchanged": "would have passed unchanged",
    "refused": "would have been refused",
}


def observed_in(events: Path, *, from_s: float) -> dict[str, int]:
    """Return how many GPU jobs observe mode would have treated in which way; {} where it decided nothing.

    Args:
        events: The controller's events.jsonl, which radd writes.
        from_s: Time of the first that counts, in seconds since the epoch.

    Raises:
        OSError: It cannot be read.
    """
    found: Counter[str] = Counter()
    for line in NewLines(events).read():
        if b" decision=observe:-" not in line or (entry := from_line(line)) is None:
            continue
        decision = _DECISION.search(entry.event.detail)
        if decision and entry.event.kind is EventKind.SUBMITTED and entry.time_s > from_s:
            found[decision[1]] += 1
    return {name: found[name] for name in _WORDS} if found else {}


def as_text(observed: dict[str, int]) -> str:
    """Return a sentence on these jobs.

    >>> as_text({"shared": 30, "whole": 9})
    'observe mode      of 39 GPU jobs 30 would have shared a GPU, 9 would have got whole GPUs'
    """
    parts = ", ".join(f"{observed[name]} {words}" for name, words in _WORDS.items() if observed.get(name))
    return f"observe mode      of {sum(observed.values())} GPU jobs {parts}"
