"""What `rad install` writes and where, and what it has to say of each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

EXECUTABLE, READABLE, SECRET = 0o755, 0o644, 0o600

FILES: dict[str, tuple[str, int]] = {
    "rad.toml": ("{etc}/rad.toml", READABLE),
    "prolog.sh": ("{etc}/prolog.sh", EXECUTABLE),
    "task_prolog.sh": ("{etc}/task_prolog.sh", EXECUTABLE),
    "epilog.sh": ("{etc}/epilog.sh", EXECUTABLE),
    "rad_settings.lua": ("{slurm}/rad/rad_settings.lua", READABLE),
    "systemd/radd.service": ("{units}/radd.service", READABLE),
    "systemd/radd.socket": ("{units}/radd.socket", READABLE),
    "systemd/rad-monitor.service": ("{units}/rad-monitor.service", READABLE),
    "logrotate.conf": ("{logrotate}/rad", READABLE),
}
"""Template -> where it goes, and its mode."""

PACKAGED_UNITS = "/usr/lib/systemd/system"
"""Where a .deb or .rpm puts the units; `rad install` writes its own only where they must say something else."""

SITE_SCRIPTS = ("job_submit.lua", "cli_filter.lua")
"""Slurm's own Lua scripts, beside slurm.conf; our other Lua files go into rad/ below."""

FRAGMENTS: dict[str, str] = {
    "slurm.conf": "{slurm}/slurm.conf",
    "gres.conf": "{slurm}/gres.conf",
    "cgroup.conf": "{slurm}/cgroup.conf",
}
"""Template -> the admin's own file that must say the same; it is shown, never written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do.

    Attributes:
        action: "write" a file that is not there; "update" one that an older release wrote and nobody has changed;
            "keep" one that says the same already; "differs": there is one that says something else and is left
            alone; "show" what an admin must add to a file of the site; "change" a line that is there in some form
            already; "types": tables of rad.toml for GPUs of several types; "count": what a site with
            slurmdbd needs besides.
        path: The file.
        content: What it should hold.
        mode: Its mode.
        owner: Who must own it; None for whoever writes it.
        why: Of one that differs, why it is left alone.
    """

    action: Literal["write", "update", "keep", "differs", "show", "change", "types", "count"]
    path: Path
    content: bytes
    mode: int = READABLE
    owner: int | None = None
    why: str = ""


def as_text(steps: Sequence[Step], *, verbose: bool, edited: bool = False) -> str:
    """Return the plan for a person; `verbose` shows the content of new files too.

    Args:
        steps: What is to be done, in order.
        verbose: Show the content of new files, too.
        edited: Slurm's own files are changed by the same command, which tells of them.
    """
    lines = []
    for step in steps:
        if edited and step.action == "differs" and step.path.name in SITE_SCRIPTS:
            lines.append(f"keep {step.path}: your own")
        elif step.action == "show":
            lines += [f"add to {step.path}, unless it says so already:", _indented(step.content)]
        elif step.action == "change":
            text = f"change in {step.path} the line of each GPU node, so that its Gres has shards beside its GPUs:"
            lines += [text, _indented(step.content)]
        elif step.action == "types":
            text = f"add to {step.path}, because this node's GPUs are of several types (docs/admin/gpu-types.md):"
            lines += [text, _indented(step.content)]
        elif step.action == "count":
            text = f"where slurmdbd keeps accounts, so that limits on GPUs hold for shared jobs too, in {step.path}:"
            lines += [text, _indented(step.content)]
        elif step.action == "differs":
            text = f"differs {step.path}: {left_alone(step.why)}; this is what it would say:"
            lines += [text, _indented(step.content)]
        else:
            lines.append(f"{step.action} {step.path}")
            ours = step.path.parent.name == "rad" and step.path.suffix == ".lua"
            if verbose and step.action == "write" and step.mode != SECRET and not ours:
                lines.append(_indented(step.content))
    return "\n".join(lines)


def left_alone(why: str) -> str:
    """Return what `rad install`, and `rad doctor` after it, say of a file that differs.

    Args:
        why: As `installed.why_left_alone` tells it.
    """
    return f"left alone, because {why}"


def says(path: Path, content: bytes) -> bool:
    """Tell whether a file holds this already.

    Args:
        path: The file.
        content: All of it.
    """
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _indented(content: bytes) -> str:
    lines = content.decode().splitlines()
    return "\n".join(f"    {line}" for line in lines if line and not line.startswith(("#", "--")))
