"""Change several files together or not at all, even if the program is killed midway.

The old content of every file is recorded first, in a separate folder (the journal). Then each new content is written
next to its file. Only when all drafts exist do they replace the files, one after the other. Any failure restores all
files at once; after a `kill -9` the next `rad install` or `rad uninstall` does. At each moment every file is whole, and
the caller orders the changes so that Slurm can start with any number of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurm_plugin.admin.install.obstacles import obstacles
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.files.atomic import fill, replace_file

JOURNAL = "unfinished"
"""The journal's folder, inside the folder of rad.toml."""
_LIST = "list.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Change of one file.

    Attributes:
        path: The file.
        old: Its content as read; None for a new file.
        new: Its new content; None to remove it.
        mode: Permissions of a new file; an existing one keeps its permissions.
        owner: Required owner of a new file; None for the writer.
        like: A file from which a new one takes owner, permissions and attributes.
        folder: Whether its folder is created if missing.
    """

    path: Path
    old: bytes | None
    new: bytes | None
    mode: int = 0o644
    owner: int | None = None
    like: Path | None = None
    folder: bool = False


def hindered(writes: Sequence[Write], etc: Path) -> list[str]:
    """Return why files cannot be changed, one line per reason; nothing is written.

    Args:
        writes: The changes.
        etc: Folder of rad.toml, where the journal is kept.
    """
    listed = Write(
        path=etc / JOURNAL / _LIST, old=None, new=b"".join(each.old or b"" for each in writes), folder=True
    )
    return obstacles([*(each for each in writes if each.old != each.new), listed])


def _once(writes: Sequence[Write]) -> list[Write]:
    """Merge the changes of each file into one: the first old content, the last new one."""
    found: dict[Path, Write] = {}
    for each in writes:
        before = found.get(each.path)
        found[each.path] = each if before is None else replace(before, new=each.new)
    return list(found.values())


def change_together(writes: Sequence[Write], etc: Path) -> None:
    """Change all files, in this order, or none.

    Args:
        writes: The changes; files that already have the new content are skipped.
        etc: Folder of rad.toml, where the journal is kept.

    Raises:
        ConfigError: A file cannot be changed; all are unchanged.
    """
    writes = _once(writes)
    writes = [replace(each, path=each.path.resolve()) for each in writes if each.old != each.new]
    if not writes:
        return
    if found := hindered(writes, etc):
        raise ConfigError("nothing was changed: " + "; ".join(found))
    made = _missing([etc, *(each.path.parent for each in writes)])
    try:
        etc.mkdir(parents=True, exist_ok=True)
        with _alone(etc):
            _begin(writes, etc / JOURNAL, made)
            try:
                _carry_out(writes, made)
            except BaseException:
                roll_back(etc)
                raise
            (etc / JOURNAL / _LIST).unlink()  # from here on the change is final
            _forget(etc / JOURNAL)
    except OSError as exc:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise ConfigError(f"nothing was changed: {exc.filename}: {exc.strerror}; run as root") from exc


def undo_unfinished(etc: Path) -> tuple[str, ...]:
    """Undo what a killed `rad install` or `rad uninstall` left half done; return a message about it.

    Args:
        etc: Folder of rad.toml.

    Raises:
        ConfigError: Something cannot be restored.
    """
    if not (etc / JOURNAL).exists():
        return ()
    try:
        with _alone(etc):
            return roll_back(etc)
    except OSError as exc:
        raise ConfigError(f"{exc.filename}: {exc.strerror}; run as root") from exc


def unfinished(etc: Path) -> bool:
    """Return whether a killed `rad install` or `rad uninstall` left a change unfinished."""
    return (etc / JOURNAL / _LIST).exists()


def roll_back(etc: Path) -> tuple[str, ...]:
    """Restore the files in the journal; can be interrupted and repeated.

    Args:
        etc: Folder of rad.toml.

    Raises:
        OSError: Something cannot be restored.
    """
    journal, lines = etc / JOURNAL, []
    if (journal / _LIST).exists():
        record: dict[str, Any] = json.loads((journal / _LIST).read_text(encoding="utf-8"))
        for number, row in reversed(list(enumerate(record["files"]))):
            path = Path(row["path"])
            _draft(path).unlink(missing_ok=True)
            now = _read(path)
            if _digest(now) == row["new"]:
                _restore(path, _read(journal / str(number)), row)
                lines.append(f"{path}: restored to its state before an interrupted run")
            elif _digest(now) != row["old"]:
                lines.append(f"{path}: not restored, because it was changed after an interrupted run")
        for folder in reversed(record["folders"]):
            with suppress(OSError):  # other files were added meanwhile
                Path(folder).rmdir()
        (journal / _LIST).unlink()
    _forget(journal)
    return tuple(lines)


def _begin(writes: Sequence[Write], journal: Path, made: Sequence[Path]) -> None:
    """Write the journal; it is valid only once its list exists."""
    if (journal / _LIST).exists():
        raise ConfigError(
            f"{journal}: another `rad install` or `rad uninstall` was interrupted; run this again"
        )
    for left in journal.iterdir():  # by a run that was killed before its list was complete
        left.unlink()
    rows = []
    try:
        for number, each in enumerate(writes):
            now = _read(each.path)
            if now != each.old:
                raise ConfigError(f"{each.path}: it was changed meanwhile; run this again")
            row: dict[str, Any] = {
                "path": str(each.path),
                "old": _digest(each.old),
                "new": _digest(each.new),
            }
            if now is not None:
                found = each.path.stat()
                row |= {"mode": stat.S_IMODE(found.st_mode), "user": found.st_uid, "group": found.st_gid}
                fill(journal / str(number), now, 0o600)
            rows.append(row)
        text = json.dumps({"files": rows, "folders": list(map(str, made))}, indent=1)
        replace_file(journal / _LIST, text.encode(), mode=0o600, synced=True)
    except BaseException:
        _forget(journal)
        raise


def _carry_out(writes: Sequence[Write], made: Sequence[Path]) -> None:
    for folder in made:
        folder.mkdir(exist_ok=True)
    for each in writes:
        if each.new is not None:
            _stage(each, each.new)
    for each in writes:
        if each.new is None:
            each.path.unlink()
        elif each.old is None:
            os.link(_draft(each.path), each.path)  # never over a file that was created meanwhile
            _draft(each.path).unlink()
        else:
            _draft(each.path).replace(each.path)


def _stage(each: Write, new: bytes) -> None:
    like = each.path if each.old is not None else each.like
    if like is None:
        owner = -1 if each.owner is None or os.geteuid() else each.owner
        fill(_draft(each.path), new, each.mode, owner=(owner, -1))
    else:
        found = like.stat()
        mode, owners = stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)
        fill(_draft(each.path), new, mode, owner=owners, like=like)


def _restore(path: Path, old: bytes | None, row: dict[str, Any]) -> None:
    if old is None:
        path.unlink()
        return
    like = path if path.exists() else None
    fill(_draft(path), old, row["mode"], owner=(row["user"], row["group"]), like=like)
    _draft(path).replace(path)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.rad-new")


def _missing(folders: Sequence[Path]) -> list[Path]:
    """Return the missing folders, parents first."""
    wanted = {above for folder in folders for above in (folder, *folder.parents)}
    return sorted(folder for folder in wanted if not folder.exists())


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _forget(journal: Path) -> None:
    if journal.exists():
        shutil.rmtree(journal)


@contextmanager
def _alone(etc: Path) -> Iterator[None]:
    """Exclude a second `rad install`, which would take the first one's journal for that of a killed run.

    The journal's folder is the lock: users can open the folder of rad.toml, and so could hold a lock on it (flock(2)).
    """
    (etc / JOURNAL).mkdir(mode=0o700, exist_ok=True)
    handle = os.open(etc / JOURNAL, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(handle).st_nlink:
            raise BlockingIOError  # another run removed it as it ended
        yield
    except BlockingIOError as exc:
        raise ConfigError(f"{etc}: another `rad install` or `rad uninstall` is at work; wait for it") from exc
    finally:
        os.close(handle)
