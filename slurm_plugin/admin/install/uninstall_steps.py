"""RAD's files and lines that `rad uninstall` finds, and its messages about them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.admin.install.slurm_lines import changed_lines
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import run

SAVED = ".before-rad-uninstall"
_TIMEOUT_S = 20.0

HOLDERS = (
    "squeue -h -a -t PD,CF,R,S,CG -O JobArrayID:40,tres-alloc:500,tres-per-node:500,tres-per-task:500,"
    "tres-per-job:500,tres-per-socket:500"
)
"""Jobs and their shards in every spelling: `gres:shard:4`, `gres/shard=4`, by node, task, job or socket."""
_SHARDS = re.compile(r"\bgres[:/]shard\b")
_MOST_NAMED = 20

UNASKED = f"before that no job may use or wait for shards: {HOLDERS} | grep -E 'gres[:/]shard'"
FLAGS_STAY = "PrologFlags stay until slurmctld, restarted, runs with this slurm.conf; then run this again"
AFTERWARDS = (
    "then copy the files to all machines; restart slurmctld first and at once (a slurmd that starts before it reports\n"
    "fewer shards than slurmctld expects, and gets no job until then), slurmd afterwards;\n"
    "then run this again: it removes PrologFlags, which slurmd must lose first and slurmctld last"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A file of Slurm's that still refers to RAD.

    Attributes:
        path: The file.
        old: Its text.
        new: Its text without RAD; None for a file that is only RAD's and is removed.
        last: Its text once its PrologFlags may go, too.
    """

    path: Path
    old: str
    new: str | None
    last: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Files to change or remove.

    Attributes:
        edits: Files of Slurm's that must change first.
        stubs: Hooks that stay as scripts that do nothing.
        remove: Files that are unchanged since `rad install` and not named by Slurm.
        named: Files that Slurm still names, or may name because slurmctld does not answer.
        quiet: Slurm's Lua scripts among these that are RAD's: they stay as scripts that do nothing.
        changed: Files that were changed since; they stay.
        manifest: The list of what was written.
        root: The root folder of all paths.
    """

    edits: tuple[Edit, ...]
    remove: tuple[Path, ...]
    stubs: tuple[Path, ...]
    named: tuple[Path, ...]
    quiet: tuple[Path, ...]
    changed: tuple[Path, ...]
    manifest: Path
    root: Path

    @property
    def takes_shards(self) -> bool:
        """Return whether shards are removed from Slurm's files."""
        return any(
            "shard" in row.lower() for one in self.edits for row in changed_lines(one.old, one.new or "")
        )

    @property
    def too_early(self) -> bool:
        """Return whether only PrologFlags are left, and slurmctld, not restarted yet or silent, still needs them."""
        rows = [row for one in self.edits for row in changed_lines(one.old, one.new or "")]
        return bool(rows and self.named) and all("prologflags" in row.lower() for row in rows)


def shard_jobs(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the ids of jobs that have or request shards; None if slurmctld does not answer.

    Args:
        env: Environment for squeue.
    """
    try:
        rows = run(HOLDERS.split(), timeout_s=_TIMEOUT_S, env=dict(env)).splitlines()
    except CommandError:
        return None
    return tuple(row.split()[0] for row in rows if _SHARDS.search(row))


def why_not_yet(removal: Removal, jobs: Sequence[str] | None) -> str:
    """Return why Slurm's files must not change yet; "" if they may.

    Args:
        removal: As `plan` returns it.
        jobs: From `shard_jobs`.
    """
    return FLAGS_STAY if removal.too_early else _jobs_text(jobs)


def _jobs_text(jobs: Sequence[str] | None) -> str:
    if not jobs:
        return ""
    more = f" and {len(jobs) - _MOST_NAMED} more" if len(jobs) > _MOST_NAMED else ""
    return (
        f"jobs that use or wait for shards: {', '.join(jobs[:_MOST_NAMED])}{more}\n"
        "slurm.conf must keep its shards until they have ended: wait for them or cancel them, then run this again;\n"
        'with mode = "off" in rad.toml and `rad reload`, new jobs request none'
    )


def as_text(removal: Removal, *, edited: bool, jobs: Sequence[str] | None) -> str:
    """Return as text what is done, or what must be done first.

    Args:
        removal: As `plan` returns it.
        edited: Whether this command also changes Slurm's files.
        jobs: From `shard_jobs`; None if slurmctld was not queried.
    """
    lines = []
    for one in removal.edits:
        what = f"changed, as it was in {one.path.name}{SAVED}" if edited else "still mentions RAD"
        lines.append(f"{one.path}: {what}")
        lines += [f"    {row}" for row in changed_lines(one.old, one.new or "")]
    if removal.edits:
        lines += [] if edited else ["change these lines, or add --edit-slurm"]
        lines += (
            [UNASKED] if removal.takes_shards and jobs is None else list(filter(None, [_jobs_text(jobs)]))
        )
        lines.append(AFTERWARDS)
    lines += [f"remove {path}" for path in removal.remove]
    lines += [f"keep {path}: it has no effect now" for path in removal.stubs]
    if removal.stubs:
        folders = sorted({f"{path.parent}/*.sh" for path in removal.stubs})
        lines.append(
            f"a slurmd that was not restarted still starts these; once all are restarted: rm {' '.join(folders)}"
        )
    lines += [f"keep {path}: Slurm still names it, or slurmctld does not answer" for path in removal.named]
    lines += [f"keep {path}: changed since `rad install` wrote it" for path in removal.changed]
    return "\n".join(lines) or "nothing of `rad install` is left here"
