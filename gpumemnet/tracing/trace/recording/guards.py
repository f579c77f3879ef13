"""Choose the side of a branch on a tensor's values, and end loops that depend on them.

A script checks its values with `assert`, or with `if ...: raise`, `sys.exit()`, `continue`, `break` or `return`: in a
run without faults these are passed. The source of the line that asks for the value says which answer does. A `while`
loop that ends on a value makes a few rounds. Whatever else asks again and again gets the other answer in the end: no
loop is endless.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from gpumemnet.tracing.trace.recording import lines

ROUNDS = 2
"""Rounds of a loop that ends on a value, after its first: what one round keeps for the next is live in the second."""
MANY = 256
"""Questions of one line between two optimizer steps, after which the answers alternate."""
PLACES = 4
"""Most places that a warning names."""
_NUMBERS = (1, 0, -1, 1000)
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_CHECKING = ("distributions", "nn", "optim")
"""Folders of PyTorch that check values themselves; its other files lie between such a line and the operator."""
_TRACING = os.path.join("gpumemnet", "tracing", "")


@dataclass(frozen=True)
class Query:
    """The line that reads a tensor's value.

    Attributes:
        frame: Where it runs.
        place: Its file and line.
        passes: As `Lines.passes`; None if neither side fails.
        stays: As `Lines.stays`; None if it ends no loop.
        tested: Whether it is in a test.
        compare: As `Lines.compared`.
        several: Whether the line has several comparisons, so that no number is known to satisfy the one that asks.
    """

    frame: Any
    place: str
    passes: bool | None
    stays: bool | None
    tested: bool
    compare: ast.Compare | None
    several: bool


class Guards:
    """Answers for values that a script asks for.

    Attributes:
        kinds: Kinds of doubt that the answers raise (`uncertainty.py`).
    """

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self._rounds: dict[tuple[int, str], dict[int, int]] = {}
        self._counts: dict[str, int] = {}
        self._guessed: dict[str, dict[str, None]] = {}

    def stepped(self) -> None:
        """Begin to count again: a loop that makes optimizer steps ends with the trace."""
        self._rounds.clear()
        self._counts.clear()

    def truth(self, *, likely: bool | None = None) -> bool:
        """Return the value of a condition.

        Args:
            likely: What the tensor's origin says of it, which counts unless a loop would not end; None if nothing.
        """
        query = _query()
        if query is None:
            return likely is not False
        if query.stays is None and query.passes is not None and likely is None:
            return bool(self._side(query))  # no loop waits for a check that fails
        turned = self._often(query) % 2 == 1
        if likely is not None and query.stays is None:
            return likely != turned
        value = self._side(query)
        if value is None or turned:
            value = (value is not False) != turned
            self._note("branches", f"was taken as {str(value).lower()}", query.place)
        return value

    def number(self, default: float) -> tuple[float, bool]:
        """Return the value of a number, and whether a test asks for it, of which a sentence of its own reports.

        Args:
            default: Value where no test asks for it, or the test has no wanted side.
        """
        query = _query()
        if query is None or not query.tested:
            return default, False
        often = self._often(query)
        wanted = self._side(query)
        found: float | None = None
        if often:
            found = _NUMBERS[often % len(_NUMBERS)]
        elif wanted is not None and not query.several:
            compare = query.compare
            found = lines.number(compare, wanted, query.frame) if compare else float(wanted)
        if found is None:
            self._note("branches", f"was taken with {default:g}", query.place)
            found = default
        same = type(default)(found)
        return (same if same == found else found), True

    def warnings(self) -> list[str]:
        """Return one sentence for each kind of answer, with the places that read the value."""
        return [
            f"a branch that depends on a tensor's values {each}"
            for each in map(_sentence, self._guessed.items())
        ]

    def _side(self, query: Query) -> bool | None:
        """Return the side of a branch that goes on; None if both do."""
        if query.stays is not None:
            return self._stays(query, query.stays)
        if query.passes is not None:
            self._note("", f"was taken as {str(query.passes).lower()}", query.place)
        return query.passes

    def _stays(self, query: Query, stays: bool) -> bool:
        """Return the value with which a loop goes on, and after some rounds the one with which it ends."""
        loop = (id(query.frame), query.place)
        made = self._rounds.setdefault(
            loop, {}
        )  # by instruction: a test is compiled before and after the loop
        at = query.frame.f_lasti
        made[at] = made.get(at, 0) + 1
        self._note("loops", "ended a loop after a few rounds", query.place)
        if made[at] <= ROUNDS:
            return stays
        del self._rounds[loop]
        return not stays

    def _often(self, query: Query) -> int:
        """Return how often a line read a value beyond MANY times since the last optimizer step."""
        self._counts[query.place] = self._counts.get(query.place, 0) + 1
        often = max(self._counts[query.place] - MANY, 0)
        if often:
            self._note("loops", "alternated after many rounds", query.place)
        return often

    def _note(self, kind: str, answer: str, place: str) -> None:
        if kind:
            self.kinds.add(kind)
        else:
            answer += _FAILS
        self._guessed.setdefault(answer, {})[place] = None


_FAILS = "\0"


def _sentence(guess: tuple[str, Collection[str]]) -> str:
    answer, places = guess
    more = f" and {len(places) - PLACES} more" if len(places) > PLACES else ""
    end = ", as the other way raises or skips" if answer.endswith(_FAILS) else ""
    return f"{answer.rstrip(_FAILS)} at {', '.join(list(places)[:PLACES])}{more}{end}"


def _query() -> Query | None:
    """Return the line that reads a value; None if no line of a script or library does."""
    frame: Any = sys._getframe(1)
    while frame is not None and _between(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    file, line = frame.f_code.co_filename, frame.f_lineno
    found = lines.of_file(file)
    return Query(
        frame=frame,
        place=f"{_short(file)}:{line}",
        passes=found.passes.get(line),
        stays=found.stays.get(line),
        tested=line in found.compared,
        compare=found.compared.get(line),
        several=line in found.several,
    )


def _between(file: str) -> bool:
    inside = file[len(_TORCH) :].split(os.sep)[0] if file.startswith(_TORCH) else _CHECKING[0]
    return _TRACING in file or inside not in _CHECKING


def _short(file: str) -> str:
    inside = os.path.join(os.getcwd(), "")
    return file[len(inside) :] if file.startswith(inside) else os.path.basename(file)
