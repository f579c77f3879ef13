"""Trace a saved profile's command again at other batch sizes, for advice: the file holds the command, but one step."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from gpumemnet.cli.invocation import PROGRAM
from gpumemnet.errors import SetupError, TraceError
from gpumemnet.gpu_memory.allocator.timeline import Timeline
from gpumemnet.profile.record import ModelProfile
from gpumemnet.summaries.texts.read import is_profile, text_of
from gpumemnet.tracing.saved.record import MAX_PROFILES, SavedProfile

MOST_BATCH = 1 << 24
MOST_TIMES = 32
"""How many times the largest batch size traced so far the next one is at most."""
BEYOND = 1.05
"""How far beyond the limit the next batch size is expected to lead."""
_BATCH = re.compile(r"^-{0,2}(?:[\w.-]*batch[\w.-]*|[\w.]*\bbs|b)$", re.IGNORECASE)
_OTHER = re.compile(r"val|test|eval|infer|num|accum|log", re.IGNORECASE)


def saved_in(path_or_text: str) -> SavedProfile | None:
    """Return the saved profile in a file; None if it is a summary.

    Raises:
        SummaryError: The file is unusable.
    """
    text, path = text_of(path_or_text)
    return SavedProfile.from_text(text, path=path) if is_profile(text) else None


def with_batch(command: Sequence[str], batch_size: int, other: int) -> list[str] | None:
    """Return a command with another batch size; None if it does not state the present one.

    Args:
        command: Its words.
        batch_size: The present batch size.
        other: The other one.

    >>> with_batch(["python", "t.py", "--batch-size", "64", "--val-batch-size=64"], 64, 8)
    ['python', 't.py', '--batch-size', '8', '--val-batch-size=64']
    >>> with_batch(["python", "t.py", "data.batch_size=64"], 64, 8), with_batch(["python", "t.py", "--n=64"], 64, 8)
    (['python', 't.py', 'data.batch_size=8'], None)
    """
    changed, before = list(command), ""
    for at, word in enumerate(command):
        name, equals, value = word.partition("=")
        if equals and value == str(batch_size) and _names_batch(name):
            changed[at] = f"{name}={other}"
        elif not equals and word == str(batch_size) and before.startswith("-") and _names_batch(before):
            changed[at] = str(other)
        before = word
    return None if changed == list(command) and other != batch_size else changed


def _names_batch(name: str) -> bool:
    return _BATCH.match(name) is not None and _OTHER.search(name) is None


class Retraced:
    """A saved profile that gets further batch sizes on demand, up to MAX_PROFILES."""

    def __init__(self, saved: SavedProfile, path: str) -> None:
        """Start with the profiles of a file.

        Raises:
            SetupError: It has one batch size, and its command does not state it.
        """
        self.saved, self._path = saved, path
        self._can_trace = with_batch(saved.command, saved.batch_size, saved.batch_size + 1) is not None
        if not self._can_trace and len(saved.profiles) == 1:
            command = shlex.join(saved.command) or "gpumemnet.save()"
            raise SetupError(
                f"{path}: made by {command}, which states no batch size {saved.batch_size}, so no other can be "
                "traced; add an option to the script, such as --batch-size, and save it again"
            )

    @property
    def sizes(self) -> list[int]:
        """Return the batch sizes of its profiles, rising."""
        return [profile.batch_size for profile in self.saved.profiles]

    def add(self, batch_size: int) -> bool:
        """Trace another batch size; return whether it is there now.

        Raises:
            TraceError: The command cannot be traced any more.
        """
        if batch_size in self.sizes:
            return True
        if not self._can_trace or len(self.sizes) >= MAX_PROFILES:
            return False
        profiles = (*self.saved.profiles, _traced(self.saved, self._path, batch_size))
        rising = tuple(sorted(profiles, key=lambda profile: profile.batch_size))
        self.saved = replace(self.saved, profiles=rising)
        return True

    def around(self, booked_bytes: Callable[[str, int], int], least_bytes: int, most_bytes: int) -> bool:
        """Add batch sizes until one books at most the least and another more than the most, as far as possible.

        Args:
            booked_bytes: Booking of a profile's text at a batch size.
            least_bytes: Memory of the smallest part of a GPU.
            most_bytes: Memory of the GPU.

        Returns:
            Whether the largest size books more than the GPU has, so that a larger one need not be traced.
        """

        def booked(batch_size: int) -> int:
            return booked_bytes(self.saved.to_text(), batch_size)

        while self.sizes[-1] < MOST_BATCH and booked(self.sizes[-1]) <= most_bytes:
            if not self.add(self._next(booked, most_bytes)):
                break
        while self.sizes[0] > 1 and booked(self.sizes[0]) > least_bytes:
            if not self.add(self.sizes[0] // 2):
                break
        return booked(self.sizes[-1]) > most_bytes

    def _next(self, booked: Callable[[int], int], most_bytes: int) -> int:
        """Return the batch size to trace next: twice the largest, or where the last two lead just beyond the limit."""
        *_, before, last = [0, *self.sizes]
        if not before:
            return 2 * last
        a_sample = (booked(last) - booked(before)) / (last - before)
        reached = last + BEYOND * (most_bytes - booked(last)) / a_sample if a_sample > 0 else math.inf
        return min(max(2 * last, math.ceil(min(reached, MOST_TIMES * last))), MOST_BATCH)


def course_of(saved: SavedProfile, path: str, batch_size: int) -> Timeline:
    """Trace a saved profile's command again and return memory over its last step.

    Args:
        saved: The profile.
        path: Its file, for messages.
        batch_size: The batch size.

    Raises:
        SetupError: It was not made by a command.
        TraceError: The command cannot be traced any more, or not with this batch size.
    """
    from gpumemnet.tracing.trace.course import from_text

    if not saved.command:
        raise SetupError(
            f"{path}: made by gpumemnet.save(), so no script can be traced again; give the model's summary"
        )
    with TemporaryDirectory(prefix="rad-course-") as folder:
        file = Path(folder) / "course.json"
        _traced(saved, path, batch_size, course=file)
        return from_text(file.read_text(encoding="utf-8"))


def _traced(saved: SavedProfile, path: str, batch_size: int, *, course: Path | None = None) -> ModelProfile:
    from gpumemnet.tracing.script import start

    command = with_batch(saved.command, saved.batch_size, batch_size) or list(saved.command)
    if sys.stderr.isatty():
        click.echo(f"{PROGRAM}: tracing {shlex.join(command)}", err=True)
    found = start.run(command, environment=os.environ, course=course)
    if isinstance(found, start.Untraced):
        raise TraceError(f"{path}: {shlex.join(command)} could not be traced again: {found.why}")
    if found.batch_size != batch_size:
        raise TraceError(
            f"{path}: {shlex.join(command)} trains with batch size {found.batch_size}, not {batch_size}"
        )
    return found.profiles[0]
