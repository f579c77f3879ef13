"""`rad uninstall`: take back what `rad install` wrote, and what it had an admin add to Slurm's own files.

Slurm comes first: a hook that slurm.conf names and that is missing drains its node (slurm.conf(5), Prolog), and
slurmctld does not start with `JobSubmitPlugins=lua` and no job_submit.lua. So a file stays as long as slurm.conf, or
the configuration that slurmctld runs with, still names it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from slurm_plugin.admin import edited
from slurm_plugin.admin.installed import NAME, digest, read_installed, write_installed
from slurm_plugin.admin.slurm_edits import gres_conf_without, slurm_conf_without
from slurm_plugin.admin.uninstall_steps import SAVED, Edit, Removal
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.whole_file import rewrite_file
from slurm_plugin.slurm.conf_lines import bytes_of, lines_of, text_of

_SCRIPTS = {"job_submit.lua": "jobsubmitplugins", "cli_filter.lua": "clifilterplugins"}
"""The scripts that Slurm loads, by the setting that has them loaded."""
_OURS = re.compile(r"""require\W{1,4}rad(_cli)?["']""")
"""How a script calls what lies in the folder rad beside it."""


def plan(*, root: Path, etc: str, slurm: str, running: Mapping[str, str] | None) -> Removal:
    """Return what would be done.

    Args:
        root: Everything lies below this folder.
        etc: Folder of our files.
        slurm: Folder of slurm.conf.
        running: What slurmctld runs with, names in lower case; None where it does not answer. As long as there is a
            slurm.conf then, whatever Slurm may start stays: slurmd runs with what it read last.

    Raises:
        ConfigError: A file cannot be read.
    """
    manifest = root / etc.lstrip("/") / NAME
    installed = read_installed(manifest)
    folder = root / slurm.lstrip("/")
    edits = _edits(folder, installed, edited.recorded(manifest.parent, root))
    remove, named, changed = [], [], []
    for name, wrote in sorted(installed.items()):
        path = root / name.lstrip("/")
        try:
            same = digest(path.read_bytes()) in wrote
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise ConfigError(f"{path}: {exc.strerror}; run as root") from exc
        silent = running is None and (folder / "slurm.conf").exists() and name.endswith((".sh", ".lua"))
        if silent or any(_needed_by(name, one) for one in edits) or _runs_with(path, name, running or {}):
            named.append(path)
        elif same:
            remove.append(path)
        else:
            changed.append(path)
    return Removal(
        edits=edits,
        remove=tuple(remove),
        named=tuple(named),
        changed=tuple(changed),
        manifest=manifest,
        root=root,
    )


def edit(edits: Sequence[Edit], *, root: Path) -> None:
    """Change Slurm's files; each is kept beside itself as it was, and keeps its owner and mode.

    Args:
        edits: What changes.
        root: Everything lies below this folder; a link that leads out of it is not followed.

    Raises:
        ConfigError: One cannot be written.
    """
    for one in edits:
        if not one.path.resolve().is_relative_to(root.resolve()):
            raise ConfigError(
                f"{one.path}: a link that leads out of {root}; change the file where it is used"
            )
    for one in edits:
        saved = one.path.with_name(one.path.name + SAVED)
        try:
            if one.new is None:
                one.path.unlink()
                continue
            if not saved.exists():
                shutil.copy2(one.path, saved)
            rewrite_file(one.path, bytes_of(one.new))
        except OSError as exc:
            raise ConfigError(f"{one.path}: {exc.strerror}; run as root") from exc


def apply(removal: Removal) -> None:
    """Remove the files, and folders of ours that are empty then.

    Raises:
        ConfigError: One cannot be removed.
    """
    try:
        for path in removal.remove:
            path.unlink(missing_ok=True)
            if path.parent.name == "rad":
                _remove_empty(path.parent)
        gone = {f"/{path.relative_to(removal.root)}" for path in removal.remove}
        if removal.manifest.exists():
            left = {
                name: found for name, found in read_installed(removal.manifest).items() if name not in gone
            }
            if removal.named:
                write_installed(removal.manifest, left)
            else:
                removal.manifest.unlink()
            if not removal.edits:
                edited.forget(removal.manifest.parent)
            _remove_empty(removal.manifest.parent)
    except OSError as exc:
        raise ConfigError(f"{exc.filename}: {exc.strerror}; run as root") from exc


def _edits(folder: Path, ours: Collection[str], recorded: Mapping[Path, Edit | None]) -> tuple[Edit, ...]:
    """Return what `rad install --edit-slurm` did, turned round; what an admin added by hand is told by its words."""
    found = [one for one in recorded.values() if one is not None]
    for name in ("slurm.conf", "gres.conf"):
        path = folder / name
        if recorded and recorded.get(path, path) is not None:  # turned round above, or never changed by us
            continue
        try:
            old = text_of(path)
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise ConfigError(f"{path}: {exc.strerror}; run as root") from exc
        new = slurm_conf_without(old, ours) if name == "slurm.conf" else gres_conf_without(old)
        if new != old:
            found.append(Edit(path=path, old=old, new=new))
    return tuple(one for one in found if one.new != one.old)


def _needed_by(name: str, conf: Edit) -> bool:
    """Return whether a file must change before one of ours may go: a hook that it names, or a Lua file of `lua`."""
    gone = set(lines_of(conf.old)) - set(lines_of(conf.new or ""))
    if name.endswith(".lua"):
        return any("lua" in line.lower() for line in gone)
    return any(name in line for line in gone)


def _runs_with(path: Path, name: str, running: Mapping[str, str]) -> bool:
    """Tell whether slurmctld runs with a file of ours, a hook, a script that it loads, or what such a script calls."""
    if not name.endswith(".lua"):
        return any(name in value.split() for value in running.values())
    if path.name in _SCRIPTS:
        return _loaded(path.name, running)
    scripts = [path.parent.parent / script for script in _SCRIPTS if _loaded(script, running)]
    return any(script.exists() and _OURS.search(text_of(script)) for script in scripts)


def _loaded(script: str, running: Mapping[str, str]) -> bool:
    return any(setting.startswith(_SCRIPTS[script]) and "lua" in value for setting, value in running.items())


def _remove_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
