"""Parse a user's directives, and load the model profile they name; used by radd and on the login node.

Only `profile_of`, which runs as the user, opens a file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from gpumemnet.directives.meant import no_summary
from gpumemnet.directives.parse import MARK, Directives, parse_comment, parse_script
from gpumemnet.errors import GpuMemNetError, lines_of
from gpumemnet.names import MpsServer, Policy
from slurm_plugin.core.errors import EstimateError
from slurm_plugin.core.records.submission import UserDirectives

__all__ = [
    "BEHIND",
    "SCRIPT_HEAD_BYTES",
    "Directives",
    "user_directives_of",
    "directives_of",
    "head_of",
    "profile_of",
]

SCRIPT_HEAD_BYTES = 1 << 16
"""Leading part of a job script that is searched for #RAD lines."""
BEHIND = f"#RAD lines after the first {SCRIPT_HEAD_BYTES >> 10} KiB are not read; move them to the top"
MOST_LINES = 5
"""Maximum number of messages about one submission; more would not be read."""
_POLICIES: dict[Policy, Literal["exclusive", "collocate"]] = {
    Policy.EXCLUSIVE: "exclusive",
    Policy.COLLOCATE: "collocate",
}


def head_of(script: bytes) -> tuple[str, bool]:
    """Return the complete lines at a script's start that are read, and whether #RAD lines follow them.

    Args:
        script: The job script; all of it, or more than SCRIPT_HEAD_BYTES.
    """
    head = script
    if len(script) > SCRIPT_HEAD_BYTES:
        head = script[: script.rfind(b"\n", 0, SCRIPT_HEAD_BYTES) + 1]  # a cut line could be misread
    return head.decode(errors="replace"), f"\n{MARK}".encode() in script[max(len(head) - 1, 0) :]


def directives_of(script: str | None, script_name: str, words: str) -> Directives | None:
    """Return the user's directives; a `rad:` comment replaces the script's #RAD lines.

    Args:
        script: The start of the job script; None if there is none to read.
        script_name: Its path, for messages.
        words: The user's text in the job's comment.

    Raises:
        EstimateError: They are malformed; the text names file, line and fix.
    """
    try:
        any_stated = parse_comment(words)
        return any_stated or (parse_script(script, script_name) if script else None)
    except GpuMemNetError as exc:
        lines = lines_of(exc)
        if len(lines) > MOST_LINES:
            more = f"{len(lines) - MOST_LINES} more mistakes in #RAD lines"
            lines = (*lines[:MOST_LINES], f"{more}; to see all, run: rad-estimate {script_name}")
        raise EstimateError(*lines) from exc


def user_directives_of(directives: Directives | None, profile: str | None) -> UserDirectives:
    """Return the user's requirements.

    Args:
        directives: The user's directives; None if there are none.
        profile: The model profile that the login node added to the comment; None without one.
    """
    if directives is None:
        return UserDirectives(profile=profile)
    return UserDirectives(
        profile=profile,
        memory_bytes=directives.memory_bytes,
        policy=None if directives.policy is None else _POLICIES[directives.policy],
        retry=directives.retry,
        gpus=directives.gpus,
        confidence=directives.confidence,
        own_server=directives.mps_server is MpsServer.OWN,
    )


def _found(model: str, folders: tuple[Path, ...]) -> Path:
    """Return the file that `model=` names; `~` is the user's home, as in a shell.

    Raises:
        EstimateError: It does not exist.
    """
    named = os.path.expanduser(model)
    for folder in folders:
        if os.path.lexists(folder / named):
            return folder / named
    looked = (
        "" if os.path.isabs(named) else f" in {' or '.join(dict.fromkeys(map(os.path.abspath, folders)))}"
    )
    shell = "; variables are not expanded in #RAD lines" if "$" in model else ""
    raise EstimateError(f"{named}: no such file{looked}; check the path{shell}")


def profile_of(directives: Directives, folders: tuple[Path, ...]) -> tuple[str, tuple[str, ...]] | None:
    """Read the model summary that the user names and return its profile; None if no model is named.

    Args:
        directives: The user's directives.
        folders: Folders in which a relative path is searched, in this order.

    Returns:
        The profile's text and the assumptions made, one sentence each.

    Raises:
        EstimateError: The summary or the setup is unusable; the text names file, line and fix.
    """
    from gpumemnet.profile.build import profile_with_warnings  # radd never reads a model

    if directives.model is None:
        return None
    if directives.model.startswith("hf:"):
        raise EstimateError(f"{directives.model}: {no_summary(directives.model)}")
    path = _found(directives.model, folders)
    if other := no_summary(path.name):
        raise EstimateError(f"{path}: {other}")
    try:
        profile, warnings = profile_with_warnings(str(path), directives.setup)
    except GpuMemNetError as exc:
        raise EstimateError(str(exc)) from exc
    return profile.to_text(), warnings
