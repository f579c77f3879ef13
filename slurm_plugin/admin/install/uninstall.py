"""`rad uninstall`: remove what `rad install` wrote, and what it had an admin add to Slurm's files.

Slurm comes first: a missing hook that slurm.conf names drains its node (slurm.conf(5), Prolog), and slurmctld does not
start with `JobSubmitPlugins=lua` and no job_submit.lua. So a file stays as long as slurm.conf, or the configuration
that slurmctld runs with, still names it. Hooks stay even then, as scripts that do nothing: a slurmd starts what it read
at its start, which cannot be found out on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from slurm_plugin.admin.doctor.collect import hook_scripts
from slurm_plugin.admin.install import backup
from slurm_plugin.admin.install.slurm_lines import flags_last, gres_conf_without, slurm_conf_without
from slurm_plugin.admin.install.transaction import Write
from slurm_plugin.admin.install.uninstall_steps import SAVED, Edit, Removal
from slurm_plugin.admin.own_files.manifest import NAME, digest, list_of, read_installed
from slurm_plugin.admin.own_files.templates import LUA_STUBS, STUBS
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.slurm.files.conf_lines import bytes_of, lines_of, read_conf, text_of

_SCRIPTS = {"job_submit.lua": "jobsubmitplugins", "cli_filter.lua": "clifilterplugins"}
"""The scripts that Slurm loads, with the setting that loads each."""
_MANAGED = re.compile(r"""require\W{1,4}rad(_cli)?["']""")
"""How a script calls the files in the folder rad next to it."""


def plan(*, root: Path, etc: str, slurm: str, running: Mapping[str, str] | None) -> Removal:
    """Return the steps of an uninstall.

    Args:
        root: The root folder of all paths.
        etc: Folder of RAD's files.
        slurm: Folder of slurm.conf.
        running: What slurmctld runs with, names in lower case; None where it does not answer. As long as there is a
            slurm.conf then, whatever Slurm may start stays: slurmd runs with what it read last.

    Raises:
        ConfigError: A file cannot be read.
    """
    manifest = root / etc.lstrip("/") / NAME
    installed = read_installed(manifest)
    folder = root / slurm.lstrip("/")
    guards = {f"{etc}/{name}": f"{slurm}/rad/{name}" for name in STUBS}
    own_paths = {*installed, *guards, *guards.values()}
    recorded = backup.recorded(manifest.parent, root)
    own = {path: one for path, one in recorded.items() if f"/{path.relative_to(root)}" in own_paths}
    edits = tuple(one for one in _edits(folder, own_paths, recorded, bool(installed)) if one.path not in own)
    in_use = (folder / "slurm.conf").exists() or (root / "run/slurm/conf/slurm.conf").exists()  # configless
    remove: list[Path] = []
    stubs: list[Path] = []
    named, changed, quiet = [], [], []
    for name, wrote in sorted(installed.items()):
        path = root / name.lstrip("/")
        try:
            same = digest(path.read_bytes()) in wrote or _before(own.get(path)) in wrote
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise ConfigError(f"{path}: {exc.strerror}; run as root") from exc
        silent = running is None and in_use and name.endswith((".sh", ".lua"))
        names = (name, guards.get(name, name))
        if silent or any(_needed_by(names, one) for one in edits) or _runs_with(path, names, running or {}):
            named.append(path)
            if same and path.name in LUA_STUBS:
                quiet.append(path)
        elif same and _is_stub(path):
            stubs.append(path)  # stays until an admin removes it
        elif same:
            (stubs if path.name in STUBS and in_use else remove).append(path)
        else:
            changed.append(path)
    return Removal(
        edits=edits,
        remove=tuple(remove),
        stubs=tuple(stubs),
        named=tuple(named),
        quiet=tuple(quiet),
        changed=tuple(changed),
        manifest=manifest,
        root=root,
    )


def writes(removal: Removal, edits: Sequence[Edit]) -> list[Write]:
    """Return the changes: RAD's Lua scripts become stubs, then Slurm's files, each with its record, then the rest.

    In this order a killed run leaves no script that requests shards which slurm.conf lacks, and no job with
    shards whose steps are not rewritten.

    Args:
        removal: As `plan` returns it.
        edits: Changes of Slurm's files by the same command.

    Raises:
        ConfigError: A file cannot be read, or is a link that leads out of the root.
    """
    found: list[Write] = []
    try:
        quiet = sorted(removal.quiet, reverse=True) if edits else []  # job_submit.lua, then cli_filter.lua
        found += [Write(path=path, old=path.read_bytes(), new=LUA_STUBS[path.name]) for path in quiet]
        for one in sorted(edits, key=lambda one: (one.path.suffix != ".conf", one.path.name == "gres.conf")):
            if not one.path.resolve().is_relative_to(removal.root.resolve()):
                where = f"a link that leads out of {removal.root}; change the file where it is used"
                raise ConfigError(f"{one.path}: {where}")
            now = one.path.read_bytes()
            saved, old = one.path.with_name(one.path.name + SAVED), bytes_of(one.old, now)
            first = removal.manifest.parent / backup.NAME / "before" / one.path.relative_to(removal.root)
            if one.new is not None and not saved.exists():
                found.append(Write(path=saved, old=None, new=old, like=one.path))
            like = first.read_bytes() if first.exists() else now
            new = None if one.new is None else bytes_of(one.new, like)
            found.append(Write(path=one.path, old=old, new=new))
            for name, text in (
                ("before", one.last),
                ("after", one.new),
            ):  # the next run removes what is left of it
                kept = removal.manifest.parent / backup.NAME / name / one.path.relative_to(removal.root)
                if text is not None and kept.exists():
                    found.append(Write(path=kept, old=kept.read_bytes(), new=bytes_of(text, like)))
        found += [Write(path=path, old=path.read_bytes(), new=STUBS[path.name]) for path in removal.stubs]
        found += [Write(path=path, old=path.read_bytes(), new=None) for path in removal.remove]
        if removal.manifest.exists():
            stubs = {path: STUBS[path.name] for path in removal.stubs}
            stubs |= {path: LUA_STUBS[path.name] for path in quiet}
            found.append(_list_after(removal, stubs))
    except OSError as exc:
        raise ConfigError(f"{exc.filename}: {exc.strerror}; run as root") from exc
    return found


def _list_after(removal: Removal, new: Mapping[Path, bytes]) -> Write:
    """Return the list of remaining files, stubs included, so that the next `rad install` renews them too."""
    names = {f"/{path.relative_to(removal.root)}": path for path in (*removal.named, *removal.stubs)}
    installed = read_installed(removal.manifest)
    left = {name: set(found) for name, found in installed.items() if name in names}
    left |= {name: {digest(new[path])} for name, path in names.items() if path in new}
    return Write(
        path=removal.manifest, old=removal.manifest.read_bytes(), new=list_of(left) if left else None
    )


def tidy(removal: Removal) -> None:
    """Remove the records of Slurm's files, if nothing there refers to RAD, and RAD's empty folders."""
    if not removal.edits:
        backup.forget(removal.manifest.parent)
    for folder in {path.parent for path in removal.remove if path.parent.name == "rad"} | {
        removal.manifest.parent
    }:
        with suppress(OSError):  # not empty, or already removed
            folder.rmdir()


def _before(one: Edit | None) -> str | None:
    """Return the digest of a file of RAD's before `--edit-slurm` of a release up to 1.3 changed and recorded it."""
    return None if one is None or one.new is None else digest(bytes_of(one.new))


def _edits(
    folder: Path, own_paths: Collection[str], recorded: Mapping[Path, Edit | None], installed: bool
) -> tuple[Edit, ...]:
    """Return what `rad install --edit-slurm` did, reversed; additions by an admin are recognized by their words.

    Where Slurm starts no hook of RAD's, its shards belong to the site: they are of no use to RAD then.
    """
    found = [one for one in recorded.values() if one is not None]
    hooked = _starts(folder / "slurm.conf", own_paths)
    if not installed and not hooked:
        return tuple(found)
    for name in ("slurm.conf", "gres.conf"):
        path = folder / name
        if recorded and recorded.get(path, path) is not None:  # reversed above, or never changed by RAD
            continue
        try:
            old = text_of(path)
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise ConfigError(f"{path}: {exc.strerror}; run as root") from exc
        if name == "slurm.conf":
            new = slurm_conf_without(old, own_paths, shards=hooked)
        else:
            new = gres_conf_without(old) if hooked else old
        if new != old:
            found.append(Edit(path=path, old=old, new=new))
    kept = [replace(one, new=flags_last(one.old, one.new), last=one.new) if one.new else one for one in found]
    return tuple(one for one in kept if one.new != one.old)


def _needed_by(names: Sequence[str], conf: Edit) -> bool:
    """Return whether a file must change before a file of RAD's may go: it names that hook, or a Lua file of `lua`."""
    gone = set(lines_of(conf.old)) - set(lines_of(conf.new or ""))
    if names[0].endswith(".lua"):
        return any("lua" in line.lower() for line in gone)
    return any(name in line for line in gone for name in names)


def _runs_with(path: Path, names: Sequence[str], running: Mapping[str, str]) -> bool:
    """Return whether slurmctld uses a file of RAD's: a hook, a script that it loads, or what such a script calls."""
    if path.suffix != ".lua":
        return any(name in value.split() for value in running.values() for name in names)
    if path.name in _SCRIPTS:
        return _loaded(path.name, running)
    scripts = [path.parent.parent / script for script in _SCRIPTS if _loaded(script, running)]
    return any(script.exists() and _MANAGED.search(text_of(script)) for script in scripts)


def _starts(slurm_conf: Path, own_paths: Collection[str]) -> bool:
    """Return whether slurm.conf, or a hook of the site's that it names, names one of RAD's files."""
    slurm = read_conf(slurm_conf)
    hooks = {} if slurm is None else hook_scripts(slurm, slurm_conf, None)
    texts = [slurm_conf, *(path for paths in hooks.values() for path in paths)]
    return any(_names(path, own_paths) for path in texts)


def _names(conf: Path, own_paths: Collection[str]) -> bool:
    try:
        text = text_of(conf)
    except OSError:
        return False  # handled where the file is read for its lines
    return any(name in text for name in own_paths)


def _is_stub(path: Path) -> bool:
    return path.name in STUBS and path.read_bytes() == STUBS[path.name]


def _loaded(script: str, running: Mapping[str, str]) -> bool:
    return any(setting.startswith(_SCRIPTS[script]) and "lua" in value for setting, value in running.items())
