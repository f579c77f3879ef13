"""Compares two records of a cell: outcome, environment and output, but for the differences that are allowed here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from comparison.allowed import CHANCE_JOB, TIMED_JOB, Record, is_allowed, is_known, plain, said, shown

CRASHES = ("132", "134", "135", "136", "139")
"""Statuses of what a signal of a fault ended: a step that was refused before, and crashes now, is a fault too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that differs.

    Attributes:
        form: The form whose doing it is; "job" for the job itself, "submission" for the command.
        grave: Whether it ran without and fails with.
        text: What, without -> with.
        only_with: Whether it failed without and runs with.
    """

    form: str
    text: str
    grave: bool = False
    only_with: bool = False


def compare(without: Record, alongside: Record) -> list[Difference]:
    """Return what differs in one cell and is not allowed."""
    found = list(_submission(without, alongside))
    found += _jobs(without, alongside)
    found += _steps(without, alongside)
    if not any(one.form == "submission" and (one.grave or one.only_with) for one in found):
        found += _files(without, alongside)
    return [one for one in found if one.grave or one.only_with or not is_known(one.text, without, one.form)]


def _submission(without: Record, alongside: Record) -> Iterator[Difference]:
    before, after = without["submission"], alongside["submission"]
    if before["rc"] != after["rc"]:
        reported = said(after["err"], alongside)
        text = f"status {before['rc']} -> {after['rc']} ({'; '.join(reported)[:200]})"
        yield Difference(form="submission", text=text, grave=before["rc"] == 0, only_with=after["rc"] == 0)
        return
    for stream in ("out", "err"):
        yield from _texts("submission", stream, (before[stream], without), (after[stream], alongside))


def _jobs(without: Record, alongside: Record) -> Iterator[Difference]:
    if len(without["jobs"]) != len(alongside["jobs"]):
        text = f"{len(without['jobs'])} -> {len(alongside['jobs'])} jobs"
        yield Difference(form="job", text=text, grave=len(without["jobs"]) > len(alongside["jobs"]))
        return
    for before, after in zip(without["jobs"], alongside["jobs"], strict=True):
        for name in sorted(before.keys() | after.keys()):
            if CHANCE_JOB.fullmatch(name) and name not in TIMED_JOB:
                continue
            one = plain(before.get(name, "(none)"), without)
            other = plain(after.get(name, "(none)"), alongside)
            if name == "Comment":
                other = re.sub(r" ?\brad2:\S+$", "", other) or "(none)"
            if one == other or is_allowed("job", name):
                continue
            grave = name == "JobState" and before[name] == "COMPLETED"
            rescued = name == "JobState" and after.get(name) == "COMPLETED"
            yield Difference(form="job", text=f"{name}: {one} -> {other}", grave=grave, only_with=rescued)


def _steps(without: Record, alongside: Record) -> Iterator[Difference]:
    """Compare what Slurm's accounts hold of a job and its steps."""
    before, after = (
        Counter((row[0].partition(".")[2], row[1].partition(" ")[0], row[2]) for row in each["steps"])
        for each in (without, alongside)
    )
    if before != after:
        gone, new = (
            ", ".join(" ".join(row) for row in sorted(side.elements())) or "(none)"
            for side in (before - after, after - before)
        )
        done = [sum(n for row, n in side.items() if row[1] == "COMPLETED") for side in (before, after)]
        more = before <= after and done[1] - done[0] == (after - before).total()
        yield Difference(
            form="job", text=f"in sacct: {gone} -> {new}", grave=done[0] > done[1], only_with=more
        )


def _files(without: Record, alongside: Record) -> Iterator[Difference]:
    before, after = _by_form(without), _by_form(alongside)
    for form in sorted(before.keys() | after.keys()):
        one, other = before.get(form, {}), after.get(form, {})
        statuses = list(_statuses(form, one, without, other, alongside))
        if statuses:  # all else follows from it
            yield from statuses
            continue
        yield from _environments(form, one, without, other, alongside)
        kinds = (_texts_of(one, without), _texts_of(other, alongside))
        for name in sorted(kinds[0].keys() | kinds[1].keys()):
            if name not in kinds[0] or name not in kinds[1]:
                side = "no longer there" if name in kinds[0] else "only with"
                yield Difference(form=form, text=f"file {name}: {side}")
                continue
            yield from _texts(form, name, (kinds[0][name], without), (kinds[1][name], alongside))


def _by_form(record: Record) -> dict[str, dict[str, str]]:
    """Return a cell's files by the form that made them; "job" has all others."""
    forms = set(record["forms"])
    found: dict[str, dict[str, str]] = {}
    for path, text in record["files"].items():
        base = path.rpartition("/")[2]
        stem = next(
            (form for form in sorted(forms, key=len, reverse=True) if base.startswith(f"{form}.")), "job"
        )
        if base.startswith("direct."):
            stem = "plain"
        found.setdefault(stem, {})[path] = text
    return found


def _statuses(
    form: str, before: dict[str, str], without: Record, after: dict[str, str], alongside: Record
) -> Iterator[Difference]:
    fewer = sum(_seen(after, alongside).values()) < sum(_seen(before, without).values())
    for path in sorted(path for path in before.keys() | after.keys() if path.endswith(".rc")):
        one, other = before.get(path, "never ended").strip(), after.get(path, "never ended").strip()
        if one != other:
            reported = said(after.get(path.removesuffix(".rc") + ".err", ""), alongside)
            grave = one == "0" or fewer or other in CRASHES
            text = f"status {one} -> {other} ({'; '.join(reported)[:200]})"
            yield Difference(form=form, text=text, grave=grave, only_with=other == "0")


def _environments(
    form: str, one: dict[str, str], without: Record, other: dict[str, str], alongside: Record
) -> Iterator[Difference]:
    before, after = _seen(one, without), _seen(other, alongside)
    if sum(before.values()) != sum(after.values()):
        counts = sum(before.values()), sum(after.values())
        text = f"{counts[0]} -> {counts[1]} tasks saw their environment"
        yield Difference(form=form, text=text, grave=counts[0] > counts[1])
        return
    gone, new = list((before - after).elements()), list((after - before).elements())
    reported: Counter[str] = Counter()
    for left, right in zip(sorted(gone), sorted(new), strict=True):
        one_env, other_env = dict(left), dict(right)
        for name in sorted(one_env.keys() | other_env.keys()):
            value, with_value = one_env.get(name, "(unset)"), other_env.get(name, "(unset)")
            if value != with_value:
                reported[f"{name}: {value} -> {with_value}"] += 1
    yield from (Difference(form=form, text=text) for text in reported)


def _seen(files: dict[str, str], record: Record) -> Counter[tuple[tuple[str, str], ...]]:
    """Return the environments that tasks saw, with what counts of each value."""
    found: Counter[tuple[tuple[str, str], ...]] = Counter()
    for path, text in files.items():
        if not path.endswith(".env"):
            continue
        pairs = (line.partition("=")[::2] for line in text.split("\0") if line)
        found[
            tuple(
                sorted(
                    (name, shown(name, value, record))
                    for name, value in pairs
                    if not is_allowed("env", f"{name}={value}")
                )
            )
        ] += 1
    return found


def _texts_of(files: dict[str, str], record: Record) -> dict[str, str]:
    """Return the texts among a form's files by a name without ids; notes of several tasks as one."""
    found: dict[str, list[str]] = {}
    for path, text in files.items():
        if path.endswith((".rc", ".env")):
            continue
        name = re.sub(r"\.(\d+|batch)\.\d+\.host$", ".host", plain(path, record))
        found.setdefault(name, []).append(text)
    return {name: "\n".join(texts) for name, texts in found.items()}


def _texts(form: str, name: str, one: tuple[str, Record], other: tuple[str, Record]) -> Iterator[Difference]:
    before, after = Counter(said(*one)), Counter(said(*other))
    gone = list((before - after).elements())
    new = [line for line in (after - before).elements() if not is_allowed("text", line)]
    if gone or new:
        yield Difference(
            form=form,
            text=f"{name}: {'; '.join(gone)[:200] or '(nothing)'} -> {'; '.join(new)[:200] or '(nothing)'}",
        )
