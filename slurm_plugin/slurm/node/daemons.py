"""Identify Slurm's own processes on this node, slurmd and slurmstepd, by what the kernel reports of them.

Users choose the names and titles of their processes, and can run setuid-root programs (su, passwd, newgrp) with root's
effective user id under any name. So the program and the user of a process are checked, and not only its title.
Of users' processes neither is read: a title may have 6 MiB, and the kernel gives none while a process waits for a file
server inside mmap(2).
On Slurm 22.05, 24.11 and 26.05 slurmstepd is not a child of slurmd: it is orphaned when it starts, and a child of init.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.process.identity import PROC, ProcFolder, opened

_TITLE = re.compile(rb"^slurmstepd: \[(\d{1,10})(?:\+(\d{1,10}))?[.+_]")
_DELETED = " (deleted)"
_INIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """Which job a process belongs to.

    Attributes:
        job_id: Slurm's job id.
        certain: The kernel proves it, by what only root can create. Otherwise it is likely, but no basis for a finding.
    """

    job_id: int
    certain: bool


def job_of_step(entry: ProcFolder, *, proc: Path = PROC) -> Belonging | None:
    """Return the job of a slurmstepd; None if the process is none.

    It is certain if its program is also the file of that path on this host, and root runs its parent; it is not if
    slurmd runs in a separate container, or /proc hides the program.

    Args:
        entry: The process.
        proc: Where /proc is.
    """
    if not entry.is_roots:
        return None
    title = _TITLE.match(entry.read("cmdline"))
    # Asked again: one of root's may have become a user's, and has this title since.
    if title is None or not entry.is_roots:
        return None
    program = entry.executable()
    if program is not None and not _is_named(program, "slurmstepd"):
        return None
    certain = program is not None and _is_here(program) and _has_roots_parent(entry, proc)
    return Belonging(job_id=int(title[1]) + int(title[2] or 0), certain=certain)


def is_slurmd(entry: ProcFolder) -> bool:
    """Return whether a process is a slurmd."""
    program = entry.executable() if entry.is_roots else None
    return program is not None and _is_named(program, "slurmd") and entry.is_roots


def _is_named(program: tuple[os.stat_result, str], name: str) -> bool:
    """Return whether a program has this name, or it plus a distribution's suffix, and is not setuid root."""
    found, path = program
    setuid = found.st_mode & (stat.S_ISUID | stat.S_ISGID)
    return not setuid and re.fullmatch(rf"{name}(-\S+)?", Path(path.removesuffix(_DELETED)).name) is not None


def _is_here(program: tuple[os.stat_result, str]) -> bool:
    """Return whether a program is from this host: the file at its path, or one that an upgrade removed from there."""
    found, path = program
    try:
        if path.endswith(_DELETED):
            return Path(path).parent.stat().st_dev == found.st_dev
        return os.path.samestat(os.stat(path), found)
    except OSError:
        return False


def _has_roots_parent(entry: ProcFolder, proc: Path) -> bool:
    pid = entry.parent
    if pid <= _INIT:
        return True
    with opened(pid, proc) as parent:
        return parent is not None and parent.is_roots
