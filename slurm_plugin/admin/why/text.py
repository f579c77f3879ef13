"""Output of `rad why`: text for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

from slurm_plugin.admin.why.answer import answer, expected_s
from slurm_plugin.admin.why.facts import WaitFacts
from slurm_plugin.core.text import one_line

VERSION = 1
_LONGEST = 300


def as_text(facts: WaitFacts) -> str:
    """Return the answer as text."""
    return "\n".join(f"{name:<11}{one_line(text, _LONGEST)}".rstrip() for name, text in _lines(facts))


def as_json(facts: WaitFacts) -> str:
    """Return the answer as JSON."""
    return json.dumps(
        {
            "version": VERSION,
            "job_id": facts.job.job_id,
            "state": facts.job.state,
            "reason": facts.job.reason,
            "causes": [asdict(cause) for cause in answer(facts)],
            "expected_start_s": expected_s(facts),
            "missing": facts.missing,
        },
        indent=1,
    )


def _lines(facts: WaitFacts) -> Iterator[tuple[str, str]]:
    job = facts.job
    reason = f" ({job.reason})" if job.reason else ""
    gres = f", {job.gres}" if job.gres else ""
    yield f"Job {job.job_id}", f"{job.state}{reason}, partition {job.partition}{gres}"
    for number, cause in enumerate(answer(facts)):
        yield "why" if number == 0 else "also", cause.text
        if cause.fix:
            yield "to do", cause.fix
    if (start_s := expected_s(facts)) is not None:
        time = datetime.fromtimestamp(start_s).strftime("%Y-%m-%d %H:%M")
        yield "expected", f"to start at {time}, by Slurm's plan"
    for text in facts.missing:
        yield "not seen", text
