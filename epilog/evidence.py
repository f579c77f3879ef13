"""Read how a job ended: its exit status and, only where they are needed, its output and rad-monitor's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from epilog.run_record import LEAST_SAMPLES
from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.core.process.time_budget import TimeIsUp, time_budget
from slurm_plugin.core.records.node import Allocation, Diagnosis, Outcome
from slurm_plugin.core.recovery.classify import Ending, classify
from slurm_plugin.core.recovery.oom_patterns import load_patterns
from slurm_plugin.monitor.window import JobUsage
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.hook_env import HookJob

LEAST_OF_ESTIMATE = 0.5
"""A job that uses less of its estimate has not begun: it loads data, or compiles."""
OWN_PATTERNS_S = 0.5
"""Time for all of a site's own regular expressions, which may backtrack endlessly."""
TAILS_S = 1.5
"""Time for the ends of all its output files; a file server may hang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEvidence:
    """All that is known of how a job ended.

    Attributes:
        ending: Exit statuses, usage and booking.
        shown: The outcome that exit status and output show by themselves.
        diagnosis: The monitor's verdict; None if the job itself was the cause, it did not fail, or no monitor watched.
    """

    ending: Ending
    shown: Outcome
    diagnosis: Diagnosis | None = None


def read_evidence(
    job: HookJob, node: Node, *, allocation: Allocation | None, usage: JobUsage | None, log: HookLog
) -> EndEvidence:
    """Read what shows how a job ended; its output is opened only if it failed, or may have been ended too early.

    Args:
        job: The job, as slurmd passes it to its hooks.
        node: This node.
        allocation: Its allocation here; None if that is not known.
        usage: What the monitor saw of it; None if nothing.
        log: Logs errors in a site's own patterns.
    """
    ending = Ending(
        exit_status=job.exit_status,
        derived_exit=job.derived_exit,
        peak_bytes=usage.peak_bytes if usage else None,
        limit_bytes=allocation.booked_bytes if allocation else None,
        user_id=job.user_id,
        job_id=job.job_id,
        requeued=allocation is not None and allocation.restart < job.restart,
    )
    failed = bool(job.exit_status or job.derived_exit)
    if not failed and (ending.requeued or not would_mislead(allocation, usage)):
        return EndEvidence(ending=ending, shown=classify(ending, (), ()))
    tails = _tails(job, node, failed=failed)
    shown = shown_by(ending, tails, site_patterns(node.config), log)
    diagnosis = None
    if failed and allocation is not None:
        from epilog.diagnosis import diagnose, server_ends  # an ordinary job ends without it

        diagnosis = diagnose(
            allocation,
            shown,
            node.config,
            node.clock,
            left_s=usage.last_s if usage else None,
            server_ends=partial(server_ends, node, job),
        )
    return EndEvidence(ending=ending, shown=shown, diagnosis=diagnosis)


def _tails(job: HookJob, node: Node, *, failed: bool) -> tuple[str, ...]:
    """Return the ends of a job's output files."""
    # An ordinary job ends without its output being read.
    from epilog.tails import read_tails
    from slurm_plugin.slurm.node.output_before import recall
    from slurm_plugin.slurm.node.output_files import expected_outputs, names_of
    from slurm_plugin.slurm.node.owner import Identity

    def tails_of(known: Mapping[str, str]) -> tuple[str, ...]:
        return read_tails(
            expected_outputs(job, known),
            owner=Identity(user_id=job.user_id, group_id=job.group_id, user_name=job.user_name),
            befores=recall(Path(node.config.paths.run), job.job_id),
            deadline=Deadline(node.clock, TAILS_S),
        )

    tails = () if failed else tails_of({})
    return tails or tails_of(names_of(job, node.slurm))


def would_mislead(allocation: Allocation | None, usage: JobUsage | None) -> bool:
    """Return whether radd or the user would mistake the usage of a run that was cut short for its full need.

    A run at its peak for a minute is in the middle of its training, and an end then changes nothing.

    Args:
        allocation: Its allocation here; None if that is not known.
        usage: What the monitor saw of it; None if nothing.
    """
    if allocation is None or usage is None or usage.peak_bytes is None:
        return False  # nothing is reported
    begun = usage.peak_bytes >= LEAST_OF_ESTIMATE * (allocation.estimate_bytes or 0)
    return not begun or usage.steady_samples < LEAST_SAMPLES


def shown_by(ending: Ending, tails: Sequence[str], own: Path, log: HookLog) -> Outcome:
    """Return what its output shows of a job, by the site's patterns and the shipped ones; the former may be broken.

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
        log.write(EventKind.PATTERNS_LEFT_OUT, f"{own}: {exc}")
    return classify(ending, tails, shipped)


def site_patterns(config: Config) -> Path:
    """Return the path of the site's own patterns."""
    return Path(config.paths.state) / "oom_patterns.toml"
