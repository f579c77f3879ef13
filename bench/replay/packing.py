"""Distribute runs over calls of limited length; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Runs, by name, as they are to be made.

    Attributes:
        calls: The runs of each call, in order.
        too_long: Runs that take longer than a call.
        no_time: Runs for which no time is left.
    """

    calls: tuple[tuple[str, ...], ...]
    too_long: tuple[str, ...]
    no_time: tuple[str, ...]


def packed(took_s: Mapping[str, float], *, rest_s: float, call_s: float, budget_s: float) -> Packed:
    """Pack runs into calls: each goes into the first one that has time left, the most wanted first.

    Args:
        took_s: How long each run takes at most, the most wanted first.
        rest_s: What is left of the call that has begun; the first one of the result.
        call_s: How long each later call may be.
        budget_s: What all of them may take together.
    """
    calls: list[list[str]] = [[]]
    free_s = [rest_s]
    too_long: list[str] = []
    no_time: list[str] = []
    for name, length_s in took_s.items():
        if length_s > max(call_s, rest_s):
            too_long.append(name)
            continue
        if length_s > budget_s:
            no_time.append(name)
            continue
        budget_s -= length_s
        place = next((n for n, left_s in enumerate(free_s) if length_s <= left_s), len(calls))
        if place == len(calls):
            calls.append([])
            free_s.append(call_s)
        calls[place].append(name)
        free_s[place] -= length_s
    return Packed(calls=_tuples(calls), too_long=tuple(too_long), no_time=tuple(no_time))


def _tuples(calls: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(call) for call in calls)
