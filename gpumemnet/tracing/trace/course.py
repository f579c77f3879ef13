"""Memory over the last traced step, for display."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

from gpumemnet.errors import TraceError
from gpumemnet.gpu_memory.allocator.events import AllocatorCall
from gpumemnet.gpu_memory.allocator.timeline import PHASES, Timeline

MAX_POINTS = 900
"""A plot is that wide; each point is the highest level of its part of the step."""


def course_of(
    events: Sequence[AllocatorCall], phase_starts: Sequence[tuple[int, str]], *, optimizers: int = 1
) -> Timeline:
    """Return tensor bytes over the last step: from the end of the step before to the end of its optimizers' steps.

    Args:
        events: Allocations and frees in order.
        phase_starts: (number of events then, phase) at each change of phase.
        optimizers: Optimizers that take a step in each.

    Raises:
        TraceError: No optimizer took a step.
    """
    marks = [*phase_starts, (len(events), "end")]
    taken = [number for number, (_, name) in enumerate(marks) if name == "optimizer"]
    if not taken:
        raise TraceError("no optimizer took a step")
    before = taken[-1 - optimizers] + 1 if len(taken) > optimizers else 0
    first, last = marks[before][0] if before else 0, marks[taken[-1] + 1][0]
    inside = [(at, name) for at, name in marks[before : taken[-1] + 1] if at >= first]
    levels = _levels(events[:last])[first:]
    begun = {name: at - first for at, name in reversed(inside)}  # the first of each
    optimizer = marks[taken[-1]][0] - first
    starts = (0, min(begun.get("backward", optimizer), optimizer), optimizer)
    return _narrowed(Timeline(level_bytes=tuple(levels), starts=starts, kept_bytes=min(levels)))


def _levels(events: Sequence[AllocatorCall]) -> list[int]:
    """Return the bytes before the first event and after each."""
    levels, live = [0], dict[int, int]()
    for key, n_bytes in events:
        change = -live.pop(key, 0) if n_bytes is None else n_bytes
        if n_bytes is not None:
            live[key] = n_bytes
        levels.append(levels[-1] + change)
    return levels


def _narrowed(course: Timeline) -> Timeline:
    n = len(course.level_bytes)
    if n <= MAX_POINTS:
        return course
    edges = [at * n // MAX_POINTS for at in range(MAX_POINTS + 1)]
    levels = tuple(max(course.level_bytes[low:high]) for low, high in pairwise(edges))
    forward, backward, optimizer = (start * MAX_POINTS // n for start in course.starts)
    return Timeline(level_bytes=levels, starts=(forward, backward, optimizer), kept_bytes=course.kept_bytes)


def to_text(course: Timeline) -> str:
    """Write it as JSON."""
    return json.dumps(
        {"level_bytes": course.level_bytes, "starts": course.starts, "kept_bytes": course.kept_bytes}
    )


def from_text(text: str) -> Timeline:
    """Parse the output of `to_text`.

    Args:
        text: Any text, since the script that is traced could have written it.

    Raises:
        TraceError: It is something else.
    """
    try:
        tree = json.loads(text)
        levels, starts, kept = tree["level_bytes"], tree["starts"], tree["kept_bytes"]
        numbers = [*levels, *starts, kept]
        fits = 0 < len(levels) <= MAX_POINTS and len(starts) == len(PHASES) and starts == sorted(starts)
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise TraceError("the trace left no course of memory") from exc
    if (
        not fits
        or any(type(number) is not int or number < 0 for number in numbers)
        or starts[-1] >= len(levels)
    ):
        raise TraceError("the trace left no course of memory")
    return Timeline(level_bytes=tuple(levels), starts=(starts[0], starts[1], starts[2]), kept_bytes=kept)
