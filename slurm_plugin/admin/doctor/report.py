"""`rad doctor`: collect, check, report. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_plugin.admin.doctor.checks.run import examine
from slurm_plugin.admin.doctor.collect import gather
from slurm_plugin.admin.doctor.finding import Finding
from slurm_plugin.admin.doctor.fixes import FixAction, RunCommand
from slurm_plugin.core.clock import Clock

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL", "unseen": "?   "}


def diagnose(config_path: Path, env: Mapping[str, str], clock: Clock) -> list[Finding]:
    """Return all findings that can be determined from this machine.

    Args:
        config_path: Path of rad.toml.
        env: Environment variables.
        clock: Time.
    """
    return examine(gather(config_path, env, clock))


def as_text(findings: Sequence[Finding]) -> str:
    """Return the findings as text, each fix under its finding, and a summary."""
    width = max((len(finding.subject) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{_MARKS[finding.level]}  {finding.subject:<{width}}  {finding.text}")
        if finding.fix:
            margin = f"      {'':<{width}}  "
            lines.append(f"{margin}fix: {finding.fix}".replace("\n", f"\n{margin}    "))
    counts = {level: sum(finding.level == level for finding in findings) for level in _MARKS}
    summary = f"{counts['fail']} to fix, {counts['warn']} to improve, {counts['ok']} fine"
    return "\n".join([*lines, f"{summary}, {counts['unseen']} not visible from this machine"])


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON."""
    rows = [
        {
            "level": finding.level,
            "subject": finding.subject,
            "text": finding.text,
            "fix": finding.fix,
            "actions": [_action(action) for action in finding.actions],
        }
        for finding in findings
    ]
    return json.dumps({"version": 1, "findings": rows}, indent=1)


def _action(action: FixAction) -> dict[str, object]:
    if isinstance(action, RunCommand):
        return {"run": list(action.argv)}
    return {"file": str(action.path), "line": action.first, "lines": action.count, "new": action.new}


def failed(findings: Sequence[Finding]) -> bool:
    """Return whether anything must be fixed."""
    return any(finding.level == "fail" for finding in findings)
