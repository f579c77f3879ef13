"""A /proc made of files: processes as the kernel would show them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

SLURMSTEPD = "slurmstepd-wlm"
"""What Debian calls it; slurmd starts it by a link to that."""


def process(
    proc: Path,
    pid: int,
    *,
    parent: int = 1,
    session: int | None = None,
    title: str = "python",
    program: str = "python3",
    users: Sequence[int] | None = None,
    cgroup: str = "0::/\n",
    environment: Mapping[str, str] | None = None,
    ticks: int = 7,
) -> Path:
    """Make one process, or one more that has its pid, and return its folder.

    Args:
        proc: Where /proc is.
        pid: Of the process.
        parent: Of its parent.
        session: Its session; None for one of its own.
        title: Its command line, arguments set apart by NUL.
        program: File name of what it runs.
        users: Its real, effective, saved and file system user id; None for root, or the process that runs the tests.
        cgroup: As /proc/PID/cgroup.
        environment: As it was started with.
        ticks: When it started.
    """
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    ids = " ".join(map(str, users or [0] * 4))
    (folder / "status").write_text(f"Name:\t{program[:15]}\nUid:\t" + ids.replace(" ", "\t") + "\n")
    fields = ["S", parent, pid, pid if session is None else session, *[0] * 15, ticks, 0]
    (folder / "stat").write_text(f"{pid} (py) thon) " + " ".join(map(str, fields)))
    (folder / "cmdline").write_text(title)
    (folder / "cgroup").write_text(cgroup)
    (folder / "environ").write_text(
        "".join(f"{name}={value}\0" for name, value in (environment or {}).items())
    )
    (folder / "exe").unlink(missing_ok=True)
    (folder / "exe").symlink_to(installed(proc, program))
    return folder


def slurmstepd(proc: Path, pid: int, step: str, **more: object) -> Path:
    """Make the slurmstepd of a step, such as `5.batch`; further arguments as for `process`."""
    words: dict[str, object] = {"title": f"slurmstepd: [{step}]", "program": SLURMSTEPD, **more}
    return process(proc, pid, **words)  # type: ignore[arg-type]


def installed(proc: Path, program: str, *, mode: int = 0o755) -> Path:
    """Return a program of this name, made once next to the processes."""
    path = proc.parent / f"{proc.name}.bin" / program
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(mode)
    return path


def cgroups(proc: Path, folder: Path, *jobs: str, version: int = 2) -> None:
    """Mount cgroups in a folder, with those given by path.

    Args:
        proc: Where /proc is.
        folder: Where they are mounted.
        jobs: Cgroups that are there.
        version: 1 (of controller memory) or 2.
    """
    kind, options = ("cgroup2", "rw") if version == 2 else ("cgroup", "rw,memory")
    (proc / "self").mkdir(parents=True, exist_ok=True)
    with (proc / "self" / "mountinfo").open("a") as file:
        file.write(f"30 25 0:26 / {folder} rw,relatime shared:9 - {kind} cgroup {options}\n")
    for job in jobs:
        (folder / job.lstrip("/")).mkdir(parents=True, exist_ok=True)


def give_away(folder: Path, user_id: int) -> None:
    """Make a folder a user's."""
    os.chown(folder, user_id, user_id)
