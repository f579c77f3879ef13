"""`rad digest`: what shared GPUs brought in a week, from the runs that the history keeps; for a mail by cron."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from slurm_plugin.admin.job_report.report import slowdown_of
from slurm_plugin.admin.table import as_table
from slurm_plugin.admin.users import name_of
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.history.advice import LEAST_S
from slurm_plugin.core.history.runs import Run, bound_of
from slurm_plugin.core.units import counted, human

VERSION = 1
DAY_S = 86_400.0
_HOUR_S = 3600.0
FAR = 2.0
"""How many times the bound of its peak a run must book to be named."""
MOST_USERS = 5
_HEADINGS = ("books far too much", "runs", "booked", "peak", "GPU hours unused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overbooked:
    """One user's runs that booked far more than they needed.

    Attributes:
        user_id: The user.
        runs: Their number.
        booked_bytes: What they booked, mean; a whole GPU counts with all of its memory.
        peak_bytes: Their peaks, mean.
        unused_h: GPU hours that they booked above the bound of their peak.
    """

    user_id: int
    runs: int
    booked_bytes: int
    peak_bytes: int
    unused_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Sums over the runs of some days; a run counts with its part inside of them.

    Attributes:
        from_s: Begin, seconds since the epoch.
        to_s: End.
        jobs: Jobs that ended.
        users: Their users.
        gpus: GPUs that they ran on.
        booked_h: GPU hours booked: the share of a GPU's memory, times hours.
        used_h: The same for the memory that they used at their peaks.
        active_h: GPU hours of SM activity.
        held_h: Hours in which GPUs had at least one job.
        whole_h: GPU hours that these jobs would have taken with whole GPUs: runs that were repeated left out, others as
            fast as alone (by the model of docs/activity.md where activity is known).
        rerun: Runs that were followed by another one of the same job, by how they ended.
        overbooked: Users who book far too much, the most unused hours first.
        unseen: Runs that no monitor saw; they count only as jobs.
        unsized: Runs in partitions without a GPU size in rad.toml; missing in booked_h, used_h and overbooked.
    """

    from_s: float
    to_s: float
    jobs: int
    users: int
    gpus: int
    booked_h: float
    used_h: float
    active_h: float
    held_h: float
    whole_h: float
    rerun: Mapping[str, int]
    overbooked: tuple[Overbooked, ...]
    unseen: int
    unsized: int

    @property
    def saved_h(self) -> float:
        """Return the GPU hours that sharing saved; below 0 if it cost some."""
        return self.whole_h - self.held_h


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """The part of a run inside the days, and the memory of a GPU (0: unknown)."""

    run: Run
    start_s: float
    end_s: float
    capacity_bytes: int

    @property
    def hours(self) -> float:
        """Return its GPU hours."""
        return (self.end_s - self.start_s) / _HOUR_S * max(1, len(self.run.gpus))

    def share(self, n_bytes: int) -> float:
        """Return the share of a GPU's memory that a size is."""
        return min(1.0, n_bytes / self.capacity_bytes)

    @property
    def booked_bytes(self) -> int:
        """Return what it booked of each GPU."""
        return self.capacity_bytes if self.run.booked_bytes is None else self.run.booked_bytes

    @property
    def unused_h(self) -> float:
        """Return the GPU hours booked above the bound of its peak."""
        return self.hours * self.share(max(0, self.booked_bytes - bound_of(self.run.peak_bytes or 0)))


def ended_in(runs: Iterable[Run], *, from_s: float, to_s: float) -> list[Run]:
    """Return the runs of jobs that ended in a time, each once although its Epilog may run twice.

    Args:
        runs: All runs.
        from_s: Beginning of the time.
        to_s: Its end.
    """
    once = {(run.job_id, run.restart): run for run in runs if run.job_id is not None}
    return [run for run in once.values() if run.time_s is not None and from_s < run.time_s <= to_s]


def parts_of(ended: Iterable[Run], config: Config, *, from_s: float) -> list[RunPart]:
    """Return the parts of runs after a time, without runs that no monitor saw.

    Args:
        ended: Runs that ended.
        config: rad.toml.
        from_s: Beginning of the time.
    """
    return [
        RunPart(
            run=run,
            start_s=max(run.start_s, from_s),
            end_s=run.time_s,
            capacity_bytes=_capacity(run, config),
        )
        for run in ended
        if run.start_s is not None and run.time_s is not None and run.start_s < run.time_s
    ]


def digest_of(runs: Iterable[Run], config: Config, *, now_s: float, days: float) -> Digest:
    """Return the digest of the days until now.

    Args:
        runs: Of all users, as the history keeps them.
        config: rad.toml.
        now_s: Seconds since the epoch.
        days: Their number.
    """
    from_s = now_s - days * DAY_S
    ended = ended_in(runs, from_s=from_s, to_s=now_s)
    parts = parts_of(ended, config, from_s=from_s)
    sized = [part for part in parts if part.capacity_bytes]
    repeated = _repeated(ended)
    return Digest(
        from_s=from_s,
        to_s=now_s,
        jobs=len({run.job_id for run in ended}),
        users=len({run.user_id for run in ended}),
        gpus=len({gpu for run in ended for gpu in run.gpus}),
        booked_h=sum(part.hours * part.share(part.booked_bytes) for part in sized),
        used_h=sum(part.hours * part.share(part.run.peak_bytes or 0) for part in sized),
        active_h=sum(part.hours * (part.run.mean_smact or 0.0) for part in parts),
        held_h=_held_h(parts),
        whole_h=_whole_h(parts, repeated),
        rerun=dict(Counter(run.outcome or "unknown" for run in repeated).most_common()),
        overbooked=_overbooked(sized),
        unseen=len(ended) - len(parts),
        unsized=len(parts) - len(sized),
    )


def _capacity(run: Run, config: Config) -> int:
    settings = config.partitions.get(run.partition or "")
    return settings.capacity_bytes if settings else 0


def _by_gpu(parts: Sequence[RunPart]) -> dict[str, list[RunPart]]:
    """Return the parts on each GPU, by their start; a run on an unknown GPU was alone on one."""
    found: dict[str, list[RunPart]] = {}
    for part in sorted(parts, key=lambda part: part.start_s):
        for gpu in part.run.gpus or (f"job {part.run.job_id} {part.run.restart}",):
            found.setdefault(gpu, []).append(part)
    return found


def _held_h(parts: Sequence[RunPart]) -> float:
    """Return the hours in which GPUs had at least one job."""
    held_s = 0.0
    for some in _by_gpu(parts).values():
        until_s = 0.0
        for part in some:
            held_s += max(0.0, part.end_s - max(part.start_s, until_s))
            until_s = max(until_s, part.end_s)
    return held_s / _HOUR_S


def _whole_h(parts: Sequence[RunPart], repeated: Sequence[Run]) -> float:
    """Return the GPU hours of runs that are each alone on their GPUs, without those that were repeated."""
    lost = set(repeated)
    others: dict[tuple[int | None, int | None], dict[int | None, Run]] = {}
    for some in _by_gpu(parts).values():
        open_parts: list[RunPart] = []
        for part in some:
            open_parts = [one for one in open_parts if one.end_s > part.start_s]
            for one in open_parts:
                for a, b in ((part.run, one.run), (one.run, part.run)):
                    if a.job_id != b.job_id:
                        others.setdefault((a.job_id, a.restart), {})[b.job_id] = b
            open_parts.append(part)
    return sum(
        part.hours
        / (slowdown_of(part.run, list(others.get((part.run.job_id, part.run.restart), {}).values())) or 1.0)
        for part in parts
        if part.run not in lost
    )


def _repeated(ended: Sequence[Run]) -> list[Run]:
    """Return the runs that were followed by another one of the same job."""
    by_job: dict[int | None, list[Run]] = {}
    for run in sorted(ended, key=lambda run: run.restart or 0):
        by_job.setdefault(run.job_id, []).append(run)
    return [run for some in by_job.values() for run in some[:-1]]


def _overbooked(parts: Sequence[RunPart]) -> tuple[Overbooked, ...]:
    by_user: dict[int, list[RunPart]] = {}
    for part in parts:
        run = part.run
        if run.outcome != "ok" or not run.peak_bytes or part.end_s - (run.start_s or 0.0) < LEAST_S:
            continue
        if part.booked_bytes >= FAR * bound_of(run.peak_bytes):
            by_user.setdefault(run.user_id, []).append(part)
    found = [
        Overbooked(
            user_id=user_id,
            runs=len(some),
            booked_bytes=sum(part.booked_bytes for part in some) // len(some),
            peak_bytes=sum(part.run.peak_bytes or 0 for part in some) // len(some),
            unused_h=sum(part.unused_h for part in some),
        )
        for user_id, some in by_user.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.unused_h, one.user_id))[:MOST_USERS])


def as_text(digest: Digest) -> str:
    """Return the digest as text for a mail."""
    return "\n".join(_lines(digest))


def _lines(digest: Digest) -> Iterator[str]:
    first, last = (datetime.fromtimestamp(s).strftime("%Y-%m-%d") for s in (digest.from_s, digest.to_s))
    jobs, users, gpus = (
        counted(digest.jobs, "job"),
        counted(digest.users, "user"),
        counted(digest.gpus, "GPU"),
    )
    yield f"Shared GPUs, {first} to {last}: {jobs} of {users} on {gpus}"
    if digest.jobs:
        saved = f"{digest.saved_h:.1f}"
        if digest.whole_h:
            saved += f" ({digest.saved_h / digest.whole_h:.0%} of the {digest.whole_h:.1f} on whole GPUs)"
        memory = f"{digest.used_h:.1f} of memory, {digest.active_h:.1f} of SM activity"
        reruns = ", ".join(f"{count} after {how}" for how, count in digest.rerun.items())
        yield f"GPU hours booked  {digest.booked_h:.1f}"
        yield f"GPU hours used    {memory}"
        yield f"GPU hours saved   {saved}"
        yield f"runs repeated     {sum(digest.rerun.values())}{f': {reruns}' if reruns else ''}"
    if digest.unseen:
        yield f"not counted       {counted(digest.unseen, 'run')} that no rad-monitor saw"
    if digest.unsized:
        yield f"not in booked     {counted(digest.unsized, 'run')} in partitions without a GPU size in rad.toml"
    if digest.overbooked:
        rows = [
            (
                name_of(one.user_id),
                str(one.runs),
                human(one.booked_bytes),
                human(one.peak_bytes),
                f"{one.unused_h:.1f}",
            )
            for one in digest.overbooked
        ]
        yield ""
        yield as_table(_HEADINGS, rows)


def as_json(digest: Digest, observed: Mapping[str, int]) -> str:
    """Return all figures as JSON.

    Args:
        digest: The digest.
        observed: What observe mode would have done, as from `observe_mode.observed_in`.
    """
    rounded = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in asdict(replace(digest, overbooked=())).items()
    }
    users = [{**asdict(one), "user": name_of(one.user_id)} for one in digest.overbooked]
    row = {"version": VERSION, **rounded, "saved_h": round(digest.saved_h, 3), "overbooked": users}
    row |= {"observed": dict(observed)} if observed else {}
    return json.dumps(row, indent=1)
