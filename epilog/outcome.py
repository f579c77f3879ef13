"""Judge how a job ended, from the evidence alone, and describe that for the log. No I/O."""

from __future__ import annotations

from dataclasses import replace

from epilog.evidence import EndEvidence
from slurm_plugin.core.logs.events import EventKind, LogEvent
from slurm_plugin.core.records.node import Outcome
from slurm_plugin.core.recovery.classify import classify
from slurm_plugin.core.units import human


def judge(evidence: EndEvidence) -> Outcome:
    """Return how a job ended: by the monitor's verdict if there is one, else as exit status and output show.

    Args:
        evidence: As `read_evidence` returns it.
    """
    shown, diagnosis = evidence.shown, evidence.diagnosis
    if diagnosis is None:
        return shown
    outcome = classify(replace(evidence.ending, diagnosis=diagnosis), (), ())
    return replace(outcome, attempted_bytes=shown.attempted_bytes, server_ends=diagnosis.server_ends)


def ending_of(outcome: Outcome) -> LogEvent:
    """Return the event of a job's end."""
    peak = "" if outcome.peak_bytes is None else f"peak {human(outcome.peak_bytes)}"
    return LogEvent(
        kind=EventKind(outcome.kind),
        detail=", ".join(filter(None, (outcome.pattern, peak, outcome.evidence))),
        facts={
            "pattern": outcome.pattern,
            "peak_bytes": outcome.peak_bytes,
            "attempted_bytes": outcome.attempted_bytes,
        },
    )
