"""`rad report --user NAME`: what a user's jobs booked and did not use, from the runs that the history keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from slurm_plugin.admin.digest import DAY_S, Digest, RunPart, digest_of, ended_in, parts_of
from slurm_plugin.admin.table import as_table
from slurm_plugin.admin.users import name_of
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.history.advice import next_time
from slurm_plugin.core.history.runs import Run
from slurm_plugin.core.units import counted, human

VERSION = 1
MOST_RUNS = 10
_HEADINGS = ("job", "ended", "hours", "booked", "peak", "GPU hours unused")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPage:
    """One user's waste in some days.

    Attributes:
        user_id: The user.
        digest: Sums over all of their jobs.
        unused_h: GPU hours booked above the bound of the peaks, in sum.
        runs: The runs with the most of these.
        advice: What to change, the most frequent first, each with the number of runs that it would help.
    """

    user_id: int
    digest: Digest
    unused_h: float
    runs: tuple[RunPart, ...]
    advice: tuple[tuple[str, int], ...]


def user_page(runs: Iterable[Run], config: Config, *, user_id: int, now_s: float, days: float) -> UserPage:
    """Return the page of a user.

    Args:
        runs: Of all users, as the history keeps them.
        config: rad.toml.
        user_id: The user.
        now_s: Seconds since the epoch.
        days: Number of days until then.
    """
    own = [run for run in runs if run.user_id == user_id]
    from_s = now_s - days * DAY_S
    ended = ended_in(own, from_s=from_s, to_s=now_s)
    parts = [
        part
        for part in parts_of(ended, config, from_s=from_s)
        if part.capacity_bytes and part.run.peak_bytes and part.unused_h > 0
    ]
    counts: dict[str, int] = {}
    for run in ended:
        for text in next_time(run, remembered=config.features.history):
            counts[text] = counts.get(text, 0) + 1
    return UserPage(
        user_id=user_id,
        digest=digest_of(own, config, now_s=now_s, days=days),
        unused_h=sum(part.unused_h for part in parts),
        runs=tuple(sorted(parts, key=lambda part: -part.unused_h)[:MOST_RUNS]),
        advice=tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
    )


def as_text(page: UserPage) -> str:
    """Return the page as text."""
    return "\n".join(_lines(page))


def as_json(page: UserPage) -> str:
    """Return the page as JSON."""
    runs = [{**asdict(part.run), "unused_h": round(part.unused_h, 3)} for part in page.runs]
    sums = {name: value for name, value in asdict(page.digest).items() if name not in ("users", "overbooked")}
    row = {"version": VERSION, "user_id": page.user_id, "user": name_of(page.user_id), **sums}
    return json.dumps({**row, "unused_h": page.unused_h, "runs": runs, "advice": page.advice}, indent=1)


def _lines(page: UserPage) -> Iterator[str]:
    found = page.digest
    days = (found.to_s - found.from_s) / DAY_S
    yield f"{name_of(page.user_id)}: {counted(found.jobs, 'job')} ended in the last {counted(days, 'day')}"
    if not found.jobs:
        return
    yield f"GPU hours booked  {found.booked_h:.1f}"
    yield f"GPU hours used    {found.used_h:.1f} of memory, {found.active_h:.1f} of SM activity"
    yield f"GPU hours unused  {page.unused_h:.1f}, booked above what the peaks need"
    yield f"runs repeated     {sum(found.rerun.values())}"
    if found.unseen:
        yield f"not counted       {counted(found.unseen, 'run')} that no rad-monitor saw"
    if found.unsized:
        yield f"not in booked     {counted(found.unsized, 'run')} in partitions without a GPU size in rad.toml"
    if page.runs:
        yield ""
        yield as_table(_HEADINGS, [_row(part) for part in page.runs])
    for text, count in page.advice:
        yield f"advice for {counted(count, 'run')}: {text}"


def _row(part: RunPart) -> tuple[str, ...]:
    run = part.run
    job = f"{run.job_id}" + (f" run {run.restart + 1}" if run.restart else "")
    booked, peak = human(part.booked_bytes), human(run.peak_bytes or 0)
    return (job, run.outcome or "?", f"{part.hours:.1f}", booked, peak, f"{part.unused_h:.1f}")
