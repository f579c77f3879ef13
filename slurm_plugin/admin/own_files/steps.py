"""The steps of `rad install`: what is written where, and the message for each step."""

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
"""Template -> its target and mode."""

PACKAGED_UNITS = "/usr/lib/systemd/system"
"""Folder where a .deb or .rpm puts the units; `rad install` writes units only where they must differ."""

SITE_SCRIPTS = ("job_submit.lua", "cli_filter.lua")
"""Slurm's Lua scripts, next to slurm.conf; RAD's other Lua files go into rad/ below."""

FRAGMENTS: dict[str, str] = {
    "slurm.conf": "{slurm}/slurm.conf",
    "gres.conf": "{slurm}/gres.conf",
    "cgroup.conf": "{slurm}/cgroup.conf",
}
"""Template -> the admin's file that must have the same content; it is shown, never written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of an install.

    Attributes:
        action: "write" a new file; "update" one from an older release that is unchanged; "keep" one with the same
            content; "differs": the existing file has other content and stays unchanged; "show" what an admin must add
            to a file of the site; "change" a line that already exists in some form; "types": tables of rad.toml for
            GPUs of several types; "count": what a site with slurmdbd also needs.
        path: The file.
        content: Its intended content.
        mode: Its mode.
        owner: Required owner; None for the user that writes it.
        why: For "differs", why the file stays unchanged.
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
        steps: The steps, in order.
        verbose: Show the content of new files, too.
        edited: Slurm's files are changed by the same command, which reports them.
    """
    lines = []
    for step in steps:
        if edited and step.action == "differs" and step.path.name in SITE_SCRIPTS:
            lines.append(f"keep {step.path}: your own")
        elif step.action == "show":
            lines += [f"add to {step.path}, unless it is there already:", _indented(step.content)]
        elif step.action == "change":
            text = f"change in {step.path} the line of each GPU node, so that its Gres has shards and GPUs:"
            lines += [text, _indented(step.content)]
        elif step.action == "types":
            text = f"add to {step.path}, because this node's GPUs are of several types (docs/admin/gpu-types.md):"
            lines += [text, _indented(step.content)]
        elif step.action == "count":
            text = f"with slurmdbd, so that limits on GPUs count shared jobs too, in {step.path}:"
            lines += [text, _indented(step.content)]
        elif step.action == "differs":
            text = f"differs {step.path}: {left_alone(step.why)}; its new content would be:"
            lines += [text, _indented(step.content)]
        else:
            lines.append(f"{step.action} {step.path}")
            shipped = step.path.parent.name == "rad" and step.path.suffix == ".lua"
            if verbose and step.action == "write" and step.mode != SECRET and not shipped:
                lines.append(_indented(step.content))
    return "\n".join(lines)


def left_alone(why: str) -> str:
    """Return the message of `rad install`, and of `rad doctor` after it, about a file that differs.

    Args:
        why: From `installed.why_left_alone`.
    """
    return f"not changed, because {why}"


def has_content(path: Path, content: bytes) -> bool:
    """Return whether a file already has this content.

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
