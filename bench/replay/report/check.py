"""Check that a replay's file has numbers where numbers are drawn; the file may come from any source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST = 1e15
"""Upper limit of all figures of a replay."""
NEEDED = ("makespan_s", "mean_waiting_s", "mean_execution_s", "mean_completion_s", "energy_j")
"""Figures that the charts show."""
SAMPLED = ("used_mib", "smact", "power_w", "jobs")
"""Quantities sampled for each GPU."""


def finite(text: str) -> float:
    """Return a number from a JSON text.

    Raises:
        ValueError: It cannot be drawn.
    """
    value = float(text)
    if not abs(value) <= MOST:
        raise ValueError(f"{text[:40]} is no number of a replay")
    return value


def check(row: Mapping[str, Any]) -> None:
    """Check everything that is counted or drawn.

    Args:
        row: Content of the file, with numbers that `finite` accepted.

    Raises:
        KeyError: Something is missing.
        ValueError: Something is not the number, list or text it should be.
        TypeError, AttributeError: The structure is wrong.
    """
    for name in ("trace", "policy"):
        _is(isinstance(row[name], str), name, "a text")
    for name in ("repetition", "compress"):
        _number(row[name], name)
    for name in ("first", "min_age_reserve_s", "users"):
        _number(row.get(name), name, none=True)
    _check_figures(row["figures"])
    for job in row["jobs"]:
        _check_job(job)
    _check_samples(row["samples"])
    for name in ("slurm", "commit"):
        row["machine"][name]


def _check_figures(figures: Mapping[str, Any]) -> None:
    for name in NEEDED:
        _number(figures[name], f"figures.{name}")
    for name, value in figures.items():
        _number(value, f"figures.{name}", none=True)


def _check_job(job: Mapping[str, Any]) -> None:
    last = job["runs"][-1] if job["runs"] else {}
    if last.get("outcome") == "ok":
        for value in (last["end_s"], last["trains_s"], job["alone_s"]):
            _number(value, "a time of a job")


def _check_samples(samples: Mapping[str, Any]) -> None:
    times, devices = samples["times_s"], samples["gpus"]
    for value in times:
        _number(value, "samples.times_s")
    for device in devices:
        _is(isinstance(device["name"], str), "the name of a GPU", "a text")
        _number(device["index"], "the index of a GPU")
        for name in SAMPLED:
            _is(len(device[name]) == len(times), f"{name} of a GPU", "as long as samples.times_s")
            for value in device[name]:
                _number(value, f"{name} of a GPU", none=True)


def _number(value: object, name: str, *, none: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    _is(number or (none and value is None), name, "a number")


def _is(holds: bool, name: str, what: str) -> None:
    if not holds:
        raise ValueError(f"{name} is not {what}")
