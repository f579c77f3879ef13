"""Several files change together, or none does, also where the program is killed in the midst of it.

What every file said before is written down first, in a folder of its own (the journal); each new content is then
written beside its file, and only when all of them are there they take their places, one after the other. Whatever
fails restores all at once, and after a `kill -9` the next `rad install` or `rad uninstall` does. In between each file
is whole, and the caller orders them so that Slurm starts with any number of them.
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
"""The journal's folder, below that of rad.toml."""
_LIST = "list.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A file that changes.

    Attributes:
        path: The file.
        old: What it says, as it was read; None if it is not there.
        new: What it is to say; None if it goes.
        mode: Permissions of a new file; one that is there keeps its own.
        owner: Who must own a new file; None for the writer.
        like: A file whose owner, permissions and attributes a new one gets.
        folder: Whether its folder is made where there is none.
    """

    path: Path
    old: bytes | None
    new: bytes | None
    mode: int = 0o644
    owner: int | None = None
    like: Path | None = None
    folder: bool = False


def hindered(writes: Sequence[Write], etc: Path) -> list[str]:
    """Return why files cannot be changed, a line each; nothing is written.

    Args:
        writes: What is to change.
        etc: Folder of rad.toml, which takes the journal.
    """
    listed = Write(
        path=etc / JOURNAL / _LIST, old=None, new=b"".join(each.old or b"" for each in writes), folder=True
    )
    return obstacles([*(each for each in writes if each.old != each.new), listed])


def _once(writes: Sequence[Write]) -> list[Write]:
    """Return one change for each file: what was there first, and what comes last."""
    found: dict[Path, Write] = {}
    for each in writes:
        before = found.get(each.path)
        found[each.path] = each if before is None else replace(before, new=each.new)
    return list(found.values())


def change_together(writes: Sequence[Write], etc: Path) -> None:
    """Change all files, in this order, or none.

    Args:
        writes: What is to change; of one that says so already nothing is done.
        etc: Folder of rad.toml, which takes the journal.

    Raises:
        ConfigError: One cannot be changed; all are as they were.
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
                put_back(etc)
                raise
            (etc / JOURNAL / _LIST).unlink()  # from here on it is done
            _forget(etc / JOURNAL)
    except OSError as exc:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise ConfigError(f"nothing was changed: {exc.filename}: {exc.strerror}; run as root") from exc


def undo_unfinished(etc: Path) -> tuple[str, ...]:
    """Put back what a killed `rad install` or `rad uninstall` left half done; return what there is to say of it.

    Args:
        etc: Folder of rad.toml.

    Raises:
        ConfigError: Something cannot be put back.
    """
    if not (etc / JOURNAL).exists():
        return ()
    try:
        with _alone(etc):
            return put_back(etc)
    except OSError as exc:
        raise ConfigError(f"{exc.filename}: {exc.strerror}; run as root") from exc


def unfinished(etc: Path) -> bool:
    """Return whether a killed `rad install` or `rad uninstall` left files half changed."""
    return (etc / JOURNAL / _LIST).exists()


def put_back(etc: Path) -> tuple[str, ...]:
    """Put back what the journal holds; may itself be cut off and done again.

    Args:
        etc: Folder of rad.toml.

    Raises:
        OSError: Something cannot be put back.
    """
    journal, said = etc / JOURNAL, []
    if (journal / _LIST).exists():
        told: dict[str, Any] = json.loads((journal / _LIST).read_text(encoding="utf-8"))
        for number, row in reversed(list(enumerate(told["files"]))):
            path = Path(row["path"])
            _draft(path).unlink(missing_ok=True)
            now = _read(path)
            if _digest(now) == row["new"]:
                _restore(path, _read(journal / str(number)), row)
                said.append(f"{path}: as it was before a change that was cut off")
            elif _digest(now) != row["old"]:
                said.append(f"{path}: left alone, because it was changed after a change that was cut off")
        for folder in reversed(told["folders"]):
            with suppress(OSError):  # something else lies in it meanwhile
                Path(folder).rmdir()
        (journal / _LIST).unlink()
    _forget(journal)
    return tuple(said)


def _begin(writes: Sequence[Write], journal: Path, made: Sequence[Path]) -> None:
    """Write the journal; nothing of it counts before its list is there."""
    if (journal / _LIST).exists():
        raise ConfigError(f"{journal}: another `rad install` or `rad uninstall` was cut off; run this again")
    _forget(journal)
    journal.mkdir(mode=0o700)
    rows = []
    try:
        for number, each in enumerate(writes):
            now = _read(each.path)
            if now != each.old:
                raise ConfigError(f"{each.path}: somebody changed it meanwhile; run this again")
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
            os.link(_draft(each.path), each.path)  # never over a file that came meanwhile
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
    """Return the folders that are not there, each behind those that it lies in."""
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
    """Keep a second `rad install` away, which would take the first one's journal for that of a killed one."""
    handle = os.open(etc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as exc:
        raise ConfigError(f"{etc}: another `rad install` or `rad uninstall` is at work; wait for it") from exc
    finally:
        os.close(handle)
