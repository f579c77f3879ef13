"""What `rad install --edit-slurm` made of Slurm's files, kept so that `rad uninstall` can put them back.

Below `/etc/rad/slurm-files` lie two trees, `before` and `after`; `diff -r` of them is what was done.
"""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_plugin.admin.uninstall_steps import Edit
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.whole_file import replace_file, rewrite_file, write_new_file
from slurm_plugin.slurm.conf_lines import bytes_of, lines_of, text_of

NAME = "slurm-files"


def undo(before: str, after: str, now: str) -> str | None:
    r"""Return a file's text without what was done to it; None where that cannot be told from what came later.

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


def put(
    etc: Path, before: Mapping[Path, str | None], after: Mapping[Path, str], runs: Sequence[Path]
) -> None:
    """Change Slurm's files, each in one step, with its owner and mode; what they said before is kept first.

    Args:
        etc: Folder of our files.
        before: Text of each file as it was read; None for one that is not there yet.
        after: What each is to say.
        runs: Those that Slurm starts as programs.

    Raises:
        ConfigError: One cannot be written, or was changed meanwhile.
    """
    try:
        for path in after:
            if before[path] != (text_of(path) if path.exists() else None):
                raise ConfigError(f"{path}: somebody changed it meanwhile; run rad install again")
        for path, text in after.items():
            _keep(etc, path, before[path], text)
            if before[path] is None:
                write_new_file(path, bytes_of(text), mode=0o755 if path in runs else 0o644)
            else:
                rewrite_file(path, bytes_of(text))
    except OSError as exc:
        raise ConfigError(f"{exc.filename}: {exc.strerror}; run as root") from exc


def recorded(etc: Path, root: Path) -> dict[Path, Edit | None]:
    """Return each file that was changed without what was done to it; None where later changes forbid that.

    Args:
        etc: Folder of our files.
        root: Below which everything lies.

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
    """Remove what was kept."""
    shutil.rmtree(etc / NAME, ignore_errors=True)


def _keep(etc: Path, path: Path, found: str | None, text: str) -> None:
    """Keep a file as it would be without us, also where this is not the first change, and as it will be."""
    folder, name = etc / NAME, str(path).lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # slurm.conf may hold what not everybody may read
    first, kept = folder / "before" / name, folder / "after" / name
    for each in (first, kept):
        each.parent.mkdir(parents=True, exist_ok=True)
    if found is not None and not kept.exists():
        shutil.copy2(path, first)
    elif found is not None and first.exists():
        without = undo(text_of(first), text_of(kept), found)
        if without is not None:
            replace_file(first, bytes_of(without), synced=True)
        else:
            shutil.copy2(path, first)
    replace_file(kept, bytes_of(text), synced=True)
