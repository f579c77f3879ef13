"""Text of `rad install --edit-slurm`: the differences, what is left to the site, and the next steps."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.admin.install.slurm_files import SlurmFilesPlan
from slurm_plugin.slurm.files.conf_lines import lines_of

NEXT = """\
then, while jobs run on:
  copy {copies} to the other machines ({key} to the controller and GPU nodes alone, mode 0600)
  on the controller:    systemctl enable --now radd && systemctl restart slurmctld
  on each GPU node:     systemctl enable --now rad-monitor && systemctl restart slurmd
  anywhere:             rad doctor"""


def _copies(plan: SlurmFilesPlan, places: Mapping[str, str]) -> str:
    """Return what other machines need, as a shell's words; next to slurm.conf may be secrets, as in slurmdbd.conf."""
    slurm = Path(places["slurm"])
    copied = {
        path.name: None
        for path in (slurm / "slurm.conf", slurm / "gres.conf", *plan.after)
        if path.parent == slurm and path.suffix != ".lua"
    }
    elsewhere = [str(path) for path in plan.after if path.parent not in (slurm, Path(places["etc"]))]
    return " ".join((places["etc"], f"{slurm}/{{{','.join((*copied, '*.lua', 'rad'))}}}", *elsewhere))


def as_text(plan: SlurmFilesPlan, places: Mapping[str, str], *, dry_run: bool, edited: bool = True) -> str:
    """Return the text.

    Args:
        plan: The planned changes of Slurm's files.
        places: "etc" and "slurm": the folders of RAD's files and of slurm.conf.
        dry_run: Whether nothing is written.
        edited: Whether this command changes Slurm's files, too.
    """
    lines: list[str] = []
    for path, after in plan.after.items():
        before = plan.before[path]
        old = [] if before is None else lines_of(before)
        lines += difflib.unified_diff(old, lines_of(after), str(path), str(path), n=1, lineterm="")
    for finding in (*plan.left, *plan.warnings):
        lines.append(f"left to you: {finding.subject}: {finding.text}")
        lines += [f"    {line}" for line in f"fix: {finding.fix}".splitlines()] if finding.fix else []
    if plan.generated:
        lines.append(
            "these files seem to be written by a program, which then undoes the changes: make them there, too"
        )
        lines += [f"    {comment}" for comment in plan.generated]
    if plan.trial is not None and plan.trial.fatal:
        lines.append(f"slurmctld does not start with these files: {plan.trial.fatal}")
    elif plan.trial is not None and plan.trial.unknown:
        lines.append(f"not tried whether slurmctld starts with these files: {plan.trial.unknown}")
    if plan.after and not edited:
        lines.append("Slurm's files need these changes: make them, or run this with --edit-slurm")
    elif plan.refused and edited:
        lines.append("Slurm's files were not changed: fix what is left to you first, then run this again")
    elif plan.after and not dry_run:
        lines.append(f"Slurm's files as they were: {places['etc']}/slurm-files/before")
        lines.append(NEXT.format(copies=_copies(plan, places), key=f"{places['etc']}/key"))
    elif not plan.after and not plan.refused:
        lines.append("Slurm's files need no change")
    return "\n".join(lines)
