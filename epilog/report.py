"""How a job ended: turn its output and the monitor's record into an Outcome, and the outcome into a line for radd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.history.runs import Run, peaks_path, record
from slurm_plugin.core.logs.events import Event as LoggedEvent
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.core.process.time_budget import TimeIsUp, time_budget
from slurm_plugin.core.records.node import Outcome, Reservation
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.recovery.classify import Ending, classify
from slurm_plugin.core.recovery.oom_patterns import load_patterns
from slurm_plugin.core.units import human
from slurm_plugin.monitor.window import JobUsage
from slurm_plugin.slurm.node.hook_env import HookJob

LEAST_SAMPLES = 60
"""A minute of training: the activity of a shorter run is mostly that of its first steps."""
LEAST_OF_ESTIMATE = 0.5
"""A job that uses less of its estimate has not begun: it loads data, or compiles."""
OWN_PATTERNS_S = 0.5
"""Time for all of a site's own regular expressions, which may backtrack endlessly."""
TAILS_S = 1.5
"""Time for the ends of all its output files; a file server may hang."""


def outcome_of(
    job: HookJob,
    config: Config,
    *,
    held: Reservation | None,
    usage: JobUsage | None,
    names: Callable[[], Mapping[str, str]],
    server_ends: Callable[[], int],
    log: HookLog,
    clock: Clock,
) -> Outcome:
    """Return how a job ended; its output is opened only if it failed, or if it may have been ended too early.

    Args:
        job: The job.
        config: rad.toml.
        held: Its allocation here; None if that is not known.
        usage: What the monitor saw of it; None if nothing.
        names: Queries Slurm for the values of %x, %A and %a; what fails is left out.
        server_ends: Queries Slurm for the number of reruns because an MPS server ended; 0 where that fails.
        log: Logs errors in a site's own patterns.
        clock: Time.
    """
    ending = Ending(
        exit_status=job.exit_status,
        derived_exit=job.derived_exit,
        peak_bytes=usage.peak_bytes if usage else None,
        limit_bytes=held.booked_bytes if held else None,
        job_id=job.job_id,
        requeued=held is not None and held.restart < job.restart,
    )
    failed = bool(job.exit_status or job.derived_exit)
    if not failed and (ending.requeued or not would_mislead(held, usage)):
        return classify(ending, (), ())
    # An ordinary job ends without its output being read.
    from epilog.tails import read_tails
    from slurm_plugin.slurm.node.output_before import recall
    from slurm_plugin.slurm.node.output_files import expected_outputs, names_matter
    from slurm_plugin.slurm.node.owner import Identity

    def tails_of(known: Mapping[str, str]) -> tuple[str, ...]:
        return read_tails(
            expected_outputs(job, known),
            owner=Identity(user_id=job.user_id, group_id=job.group_id, user_name=job.user_name),
            befores=recall(Path(config.paths.run), job.job_id),
            deadline=Deadline(clock, TAILS_S),
        )

    tails = () if failed else tails_of({})  # query Slurm for names only if needed
    if not tails:
        tails = tails_of(names() if names_matter(job) else {})
    outcome = judged(ending, tails, site_patterns(config), log)
    if held is None or not failed:
        return outcome
    from epilog.verdict import verdict_on

    left_s = usage.last_s if usage else None
    verdict = verdict_on(held, outcome, config, clock, left_s=left_s, server_ends=server_ends)
    if verdict is None:
        return outcome
    told = classify(replace(ending, verdict=verdict, user_id=job.user_id), (), ())
    return replace(told, attempted_bytes=outcome.attempted_bytes, server_ends=verdict.server_ends)


def would_mislead(held: Reservation | None, usage: JobUsage | None) -> bool:
    """Return whether radd or the user would mistake the usage of a run that was cut short for its full need.

    A run at its peak for a minute is in the middle of its training, and an end then changes nothing.

    Args:
        held: Its allocation here; None if that is not known.
        usage: What the monitor saw of it; None if nothing.
    """
    if held is None or usage is None or usage.peak_bytes is None:
        return False  # nothing is reported
    begun = usage.peak_bytes >= LEAST_OF_ESTIMATE * (held.estimate_bytes or 0)
    return not begun or usage.steady_samples < LEAST_SAMPLES


def judged(ending: Ending, tails: Sequence[str], own: Path, log: HookLog) -> Outcome:
    """Return why a job ended, by the site's patterns and the shipped ones; the former may be broken, or slow.

    Args:
        ending: What is known apart from the output.
        tails: The last part of each output file.
        own: Path of the site's own patterns.
        log: Logs why they were left out.
    """
    shipped = load_patterns()
    try:
        patterns = load_patterns((own,))
        if patterns:
            with time_budget(OWN_PATTERNS_S):
                return classify(ending, tails, (*patterns, *shipped))
    except (ConfigError, TimeIsUp) as exc:
        log.say(EventKind.PATTERNS_LEFT_OUT, f"{own}: {exc}")
    return classify(ending, tails, shipped)


def ending_of(outcome: Outcome) -> LoggedEvent:
    """Return the event of a job's end."""
    peak = "" if outcome.peak_bytes is None else f"peak {human(outcome.peak_bytes)}"
    return LoggedEvent(
        kind=EventKind(outcome.kind),
        detail=", ".join(filter(None, (outcome.pattern, peak, outcome.evidence))),
        facts={
            "pattern": outcome.pattern,
            "peak_bytes": outcome.peak_bytes,
            "attempted_bytes": outcome.attempted_bytes,
        },
    )


def activity_of(usage: JobUsage | None) -> float | None:
    """Return the SM activity that a run would have had alone; None if it was too short, or never had SMs to spare."""
    if usage is None or usage.own_smact is None or usage.own_samples < LEAST_SAMPLES:
        return None
    return round(usage.own_smact, 3)


def site_patterns(config: Config) -> Path:
    """Return the path of the site's own patterns."""
    return Path(config.paths.state) / "oom_patterns.toml"


def run_of(
    job: HookJob,
    booking: Booking,
    outcome: Outcome,
    usage: JobUsage | None,
    *,
    now_s: float,
) -> Run:
    """Return the record of a run.

    Args:
        job: The job.
        booking: What it booked.
        outcome: How it ended.
        usage: What the monitor saw of it; None if nothing.
        now_s: Seconds since the epoch.
    """
    learned = outcome.kind == "ok" and outcome.peak_bytes is not None and booking.profile_key is not None
    missed = outcome.kind == "overrun" or (outcome.kind == "gpu-oom" and outcome.corroborated)
    return Run(
        user_id=job.user_id,
        peak_bytes=outcome.peak_bytes,
        profile_key=booking.profile_key if learned else None,  # a run cut short shows no need
        missed_key=booking.profile_key if missed else None,
        job_id=job.job_id,
        restart=job.restart,
        time_s=round(now_s, 3),
        partition=job.partition,
        outcome=outcome.kind,
        estimate_bytes=booking.estimate_bytes,
        booked_bytes=booking.memory_bytes,
        cap_bytes=booking.cap_bytes,
        mean_smact=usage.mean_smact if usage else None,
        p95_smact=usage.p95_smact if usage else None,
        energy_j=usage.energy_j if usage else None,
        start_s=usage.first_s if usage else None,
        node=job.node or None,
        smact=activity_of(usage) if learned else None,
        gpus=usage.gpus if usage else (),
        processes=booking.processes,
    )


def keep_run(config: Config, run: Run) -> None:
    """Record a job's measured need, for radd to learn from and for people to query; sends no requests.

    Args:
        config: rad.toml.
        run: As `run_of` returns it.

    Raises:
        OSError: It cannot be written.
    """
    record(peaks_path(Path(config.paths.state)), run)
