"""Record what `rad install --edit-slurm` changed in Slurm's files, so that `rad uninstall` can undo it.

Below `/etc/rad/slurm-files` lie two trees, `before` and `after`; `diff -r` of them shows the changes.
"""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_plugin.admin.install.transaction import Write
from slurm_plugin.admin.install.uninstall_steps import Edit
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.slurm.files.conf_lines import bytes_of, lines_of, text_of

NAME = "slurm-files"


def undo(before: str, after: str, now: str) -> str | None:
    r"""Return a file's text with RAD's change undone; None if later changes make that ambiguous.

    Args:
        before: Its text before.
        after: Its text afterwards.
        now: Its text now.

    >>> undo("a=1\nb=2\n", "a=1\nb=2,3\n", "# new\na=1\nb=2,3\n")
    '# new\na=1\nb=2\n'
    >>> undo("b=2\n", "b=2,3\n", "b=2,3,4\n") is None
    True
    """
    if now == after:
        return before
    old, new, left = lines_of(before), lines_of(after), lines_of(now)
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        places = [at for at in range(len(left)) if left[at : at + d - c] == new[c:d]] if d > c else []
        if len(places) != 1:
            return None
        left[places[0] : places[0] + d - c] = old[a:b]
    return "\n".join([*left, ""])


def writes(
    etc: Path, before: Mapping[Path, str | None], after: Mapping[Path, str], runs: Sequence[Path]
) -> list[Write]:
    """Return the changes of Slurm's files and the records of them, in an order that Slurm can start with.

    Args:
        etc: Folder of RAD's files.
        before: Text of each file as it was read; None for a new file.
        after: New text of each file.
        runs: The files that Slurm starts as programs.

    Raises:
        ConfigError: One cannot be read.
    """
    found: list[Write] = []
    try:
        for path in sorted(after, key=lambda path: _turn(before[path] or "", after[path], path)):
            old, mode = before[path], 0o755 if path in runs else 0o644
            found += _kept(etc, path, old, after[path])
            now = path.read_bytes() if path.exists() else b""
            was = None if old is None else bytes_of(old, now)
            own = path.parent == etc  # `rad install` creates that folder, just before or in the same change
            found.append(Write(path=path, old=was, new=bytes_of(after[path], now), mode=mode, folder=own))
    except OSError as exc:
        raise ConfigError(f"{exc.filename}: {exc.strerror}; run as root") from exc
    return found


def _turn(before: str, after: str, path: Path) -> int:
    """Return the order of a file's change: each thing exists before it is named, so that Slurm can start at any moment.

    slurmctld does not start with shards of a node that `GresTypes` does not have. A node is invalid if its gres.conf
    has fewer than its line of slurm.conf. Shards in gres.conf without `GresTypes` are ignored.
    """
    new = "\n".join(set(lines_of(after)) ^ set(lines_of(before))).lower()
    if path.suffix != ".conf" or path.name == "gres.conf":
        return 0 if path.suffix != ".conf" else 1
    return 2 if "grestypes" in new else 3


def recorded(etc: Path, root: Path) -> dict[Path, Edit | None]:
    """Return each changed file with RAD's change undone; None if later changes prevent that.

    Args:
        etc: Folder of RAD's files.
        root: The root folder of all paths.

    Raises:
        ConfigError: A file cannot be read.
    """
    folder = etc / NAME
    found: dict[Path, Edit | None] = {}
    try:
        for kept in sorted(path for path in (folder / "after").rglob("*") if path.is_file()):
            name = kept.relative_to(folder / "after")
            path, first = root / name, folder / "before" / name
            if path.exists():
                before = text_of(first) if first.exists() else None
                found[path] = _without(path, before, text_of(kept))
    except OSError as exc:
        raise ConfigError(f"{exc.filename}: {exc.strerror}; run as root") from exc
    return found


def _without(path: Path, before: str | None, after: str) -> Edit | None:
    now = text_of(path)
    if before is None:
        return Edit(path=path, old=now, new=None) if now == after else None
    new = before if now == before else undo(before, after, now)
    return None if new is None else Edit(path=path, old=now, new=new)


def forget(etc: Path) -> None:
    """Remove the records."""
    shutil.rmtree(etc / NAME, ignore_errors=True)


def _kept(etc: Path, path: Path, found: str | None, text: str) -> list[Write]:
    """Return the records of a file: its text without RAD, and its new text."""
    folder, name = etc / NAME, str(path).lstrip("/")
    first, kept = folder / "before" / name, folder / "after" / name
    now = path.read_bytes() if path.exists() else b""
    without = found
    if found is not None and kept.exists():
        without = undo(text_of(first), text_of(kept), found) if first.exists() else None
        without = found if without is None and first.exists() else without
    return [
        Write(
            path=each,
            old=each.read_bytes() if each.exists() else None,
            new=bytes_of(new, now),
            mode=0o600,
            folder=True,
        )
        for each, new in ((first, without), (kept, text))
        if new is not None
    ]
