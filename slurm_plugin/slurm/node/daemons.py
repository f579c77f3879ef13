"""Which processes are Slurm's own on this node: slurmd and slurmstepd, by what the kernel says of them.

A user chooses the names and titles of his processes, and has setuid-root programs (su, passwd, newgrp) run with root's
effective user id under any name. So a process counts by its program and by who runs it, and by its title only then.
On Slurm 22.05, 24.11 and 26.05 slurmstepd is no child of slurmd: it is orphaned when it starts, and init's.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.process.identity import PROC, Entry, opened

_TITLE = re.compile(rb"^slurmstepd: \[(\d+)(?:\+(\d+))?[.+_]")
_DELETED = " (deleted)"
_INIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """Which job a process belongs to.

    Attributes:
        job_id: Slurm's job id.
        certain: The kernel shows it, by what only root can make. Else it may be, and nobody is judged by it.
    """

    job_id: int
    certain: bool


def job_of_step(entry: Entry, *, proc: Path = PROC) -> Belonging | None:
    """Return the job of a slurmstepd; None if the process is none.

    It is certain where its program is also the file of that path on this host, and its parent is root's; it is not
    where slurmd runs in a container of its own, or /proc hides the program.

    Args:
        entry: The process.
        proc: Where /proc is.
    """
    title = _TITLE.match(entry.read("cmdline"))  # first: what it is now, a user's process cannot have become
    if title is None or not entry.is_roots:
        return None
    program = entry.executable()
    if program is not None and not _is_named(program, "slurmstepd"):
        return None
    certain = program is not None and _is_here(program) and _has_roots_parent(entry, proc)
    return Belonging(job_id=int(title[1]) + int(title[2] or 0), certain=certain)


def is_slurmd(entry: Entry) -> bool:
    """Return whether a process is a slurmd.

    Args:
        entry: The process.
    """
    program = entry.executable()
    return entry.is_roots and program is not None and _is_named(program, "slurmd")


def _is_named(program: tuple[os.stat_result, str], name: str) -> bool:
    """Return whether a program has this name, or this with a distribution's ending, and makes nobody root."""
    found, path = program
    setuid = found.st_mode & (stat.S_ISUID | stat.S_ISGID)
    return not setuid and re.fullmatch(rf"{name}(-\S+)?", Path(path.removesuffix(_DELETED)).name) is not None


def _is_here(program: tuple[os.stat_result, str]) -> bool:
    """Return whether a program is this host's: the very file of its path, or one that an upgrade took from there."""
    found, path = program
    try:
        if path.endswith(_DELETED):
            return Path(path).parent.stat().st_dev == found.st_dev
        return os.path.samestat(os.stat(path), found)
    except OSError:
        return False


def _has_roots_parent(entry: Entry, proc: Path) -> bool:
    pid = entry.parent
    if pid <= _INIT:
        return True
    with opened(pid, proc) as parent:
        return parent is not None and parent.is_roots
