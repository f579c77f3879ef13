"""Find the job of a process by its cgroup: a folder that Slurm's plugin made, not a user's folder of the same name.

    cgroup/v1   /slurm/uid_1000/job_42/step_0, or /slurm_NODE/...
    cgroup/v2   /system.slice/slurmstepd.scope/job_42/step_0, or NODE_slurmstepd.scope

A user can make folders of any name below those that systemd, a container engine or Slurm itself (a step's folder of
cgroup/v1) gave to the user, and owns them. So root must own the job's folder and all above it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.process.identity import PROC, ROOT, ProcFolder

_SLURMS = re.compile(
    r"(?:^|/)(?:slurm(?:_[^/]+)?/uid_\d+|(?:[^/]+_)?slurmstepd\.scope)/job_(\d{1,10})(?=/|$)"
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """Where one hierarchy of cgroups is mounted (proc(5), /proc/PID/mountinfo).

    Attributes:
        controllers: Its name in /proc/PID/cgroup; empty for cgroup v2.
        root: Which of its folders is mounted.
        folder: Where it is mounted.
    """

    controllers: frozenset[str]
    root: str
    folder: Path


def hierarchies(proc: Path = PROC) -> tuple[Hierarchy, ...]:
    """Return where cgroups are mounted, as this process sees them."""
    try:
        text = (proc / "self" / "mountinfo").read_bytes()
    except OSError:
        return ()
    return tuple(found for line in _lines(text) for found in _hierarchy(line))


def _hierarchy(line: str) -> Iterator[Hierarchy]:
    mounted, _, rest = line.partition(" - ")
    fields, kind = mounted.split(" "), rest.split(" ")
    if len(fields) > 4 and kind[0] in ("cgroup", "cgroup2"):
        root, folder = (_ESCAPE.sub(lambda found: chr(int(found[1], 8)), field) for field in fields[3:5])
        names = frozenset(kind[-1].split(",")) if kind[0] == "cgroup" else frozenset()
        yield Hierarchy(controllers=names, root=root, folder=Path(folder))


def _lines(text: bytes) -> list[str]:
    """Return lines as the kernel ends them: users' names in them may hold any other line end (str.splitlines)."""
    return os.fsdecode(text).split("\n")


def job_of_cgroup(entry: ProcFolder, mounted: Sequence[Hierarchy]) -> int | None:
    """Return the job of a process's cgroup; None if Slurm made none of its cgroups.

    Args:
        entry: The process.
        mounted: Where cgroups are mounted.
    """
    for line in _lines(entry.read("cgroup")):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        found = _SLURMS.search(path)
        if found is not None and _is_roots(controllers, path[: found.end()], mounted):
            return int(found[1])
    return None


def _is_roots(controllers: str, path: str, mounted: Sequence[Hierarchy]) -> bool:
    """Return whether root owns a cgroup and all above it."""
    wanted = frozenset(controllers.split(",")) - {""}
    for one in mounted:
        if bool(wanted) != bool(one.controllers) or not wanted <= one.controllers:
            continue
        if one.root != "/" and not path.startswith(f"{one.root}/"):
            continue
        below = Path(path.removeprefix(one.root).lstrip("/"))
        if ".." in below.parts:
            continue
        try:
            return all(
                folder.lstat().st_uid == ROOT
                for folder in (one.folder, *(one.folder / part for part in (below, *below.parents)))
            )
        except OSError:
            continue
    return False
