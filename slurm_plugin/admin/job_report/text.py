"""Output of `rad report JOB`: text for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime

from slurm_plugin.admin.job_report.report import JobReport, Neighbour, RunReport
from slurm_plugin.admin.top.cells import duration
from slurm_plugin.admin.users import name_of
from slurm_plugin.core.comments.admin_comment import Note
from slurm_plugin.core.history.advice import used
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.text import one_line
from slurm_plugin.core.units import counted, human

VERSION = 1
MOST_EVENTS = 20
_LONGEST = 160
_BASES = {"requested": "as requested", "estimate": "as estimated", "history": "from earlier runs"}


def as_text(report: JobReport) -> str:
    """Return the report as text."""
    return "\n".join(f"{name:<11}{text}".rstrip() for name, text in _lines(report))


def as_json(report: JobReport) -> str:
    """Return the report as JSON: the facts about the job, and what was computed from them."""
    found = report.found
    return json.dumps(
        {
            "version": VERSION,
            "job_id": found.job_id,
            "user_id": report.user_id,
            "slurm": asdict(found.times) if found.times else None,
            "booking": asdict(found.booking) if found.booking else None,
            "model": asdict(report.model) if report.model else None,
            "waited_s": report.waited_s,
            "note": asdict(report.note) if report.note else None,
            "runs": [asdict(run) for run in report.runs],
            "live": [{"node": node, **asdict(gpu)} for node, gpu in found.live],
            "nearby": [asdict(one) for one in report.nearby],
            "events": [
                {"time_s": one.time_s, "hook": one.hook, "event": one.event.kind, "detail": one.event.detail}
                for one in found.events
            ],
            "advice": report.advice,
            "missing": found.missing,
        },
        indent=1,
    )


def _lines(report: JobReport) -> Iterator[tuple[str, str]]:
    found, times = report.found, report.found.times
    user = "" if report.user_id is None else f", {name_of(report.user_id)}"
    where = f", partition {times.partition}: {times.state}" if times else ""
    yield f"Job {found.job_id}", f"{user}{where}".removeprefix(", ")
    if times and times.requested:
        yield "in Slurm", one_line(times.requested, _LONGEST)
    if report.model is not None:
        yield "model", str(report.model)
    if found.booking is not None:
        yield from _booking(found.booking)
    if report.waited_s is not None and times and times.start_s:
        yield "waited", f"{duration(report.waited_s)}, started {_time(times.start_s)}"
    yield from _runs(report)
    for node, gpu in found.live:
        job = next(job for job in gpu.jobs if job.job_id == found.job_id)
        now = "-" if job.used_bytes is None else human(job.used_bytes)
        idle = "" if job.idle_s is None else f", idle for {duration(job.idle_s)}"
        yield "now", f"{now} of {human(job.booked_bytes)} on {node} GPU {gpu.index}{idle}"
    if report.nearby:
        yield "neighbours", _names(report.nearby)
    for one in [one for one in found.events if one.event.kind != EventKind.END][-MOST_EVENTS:]:
        yield (
            "event",
            one_line(f"{_time(one.time_s)} {one.hook}: {one.event.kind} {one.event.detail}", _LONGEST),
        )
    for text in report.advice:
        yield "advice", text
    for text in found.missing:
        yield "not seen", one_line(text, _LONGEST)


def _booking(booking: Booking) -> Iterator[tuple[str, str]]:
    activity = "" if booking.smact is None else f", SM activity {booking.smact:.2f}"
    if booking.estimate_bytes is not None:
        yield "estimated", f"{human(booking.estimate_bytes)}{activity}"
    if booking.memory_bytes is None:
        yield "booked", counted(booking.gpus, "whole GPU")
        return
    cap = f", limit {human(booking.cap_bytes)}" if booking.cap_bytes else ""
    yield "booked", f"{human(booking.memory_bytes)}, {_BASES[booking.basis]}{cap}"


def _runs(report: JobReport) -> Iterator[tuple[str, str]]:
    times = report.found.times
    if times and times.restarts and len(report.runs) <= times.restarts:
        yield "requeued", counted(times.restarts, "time")
    if report.note is not None:
        yield "note", one_line(_note(report.note), _LONGEST)
    for number, run in enumerate(report.runs, start=1):
        yield from _run(run, f"run {number}" if len(report.runs) > 1 else "ran")


def _note(note: Note) -> str:
    peak = "" if note.peak_bytes is None else f"peak {human(note.peak_bytes)}"
    activity = "" if note.smact is None else f"SM activity {note.smact:.2f}"
    return f"{note.event}: {', '.join(filter(None, (peak, activity, note.detail)))}"


def _run(report: RunReport, name: str) -> Iterator[tuple[str, str]]:
    run = report.run
    lasted = ""
    if run.start_s is not None and run.time_s is not None:
        lasted = f"{duration(run.time_s - run.start_s)} from {_time(run.start_s)}"
    place = f" on {run.node or '?'} {' '.join(run.gpus)}".rstrip()
    yield name, f"{lasted}{place}: {run.outcome or '?'}".strip()
    if usage := used(run):
        energy = "" if not run.energy_j else f", {run.energy_j / 1000:.1f} kJ"
        high = "" if run.p95_smact is None else f" (95th percentile {run.p95_smact:.2f})"
        yield "", f"{usage}{high}{energy}"
    if report.neighbours:
        yield "", f"shared with {_names(report.neighbours)}"
    if report.slowdown is not None and report.neighbours:
        yield "", f"about {report.slowdown:.1f} times as long as alone, estimated (docs/activity.md)"


def _names(neighbours: Sequence[Neighbour]) -> str:
    return ", ".join(
        f"{one.job_id} ({name_of(one.user_id)})"
        + ("" if one.together_s is None else f" for {duration(one.together_s)}")
        for one in neighbours
    )


def _time(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).strftime("%Y-%m-%d %H:%M:%S")
