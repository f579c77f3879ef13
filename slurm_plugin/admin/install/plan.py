"""`rad install`: fill in the configuration files and write them; files of other origin are never overwritten."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from slurm_plugin.admin.install.slurm_files import NodeGpus
from slurm_plugin.admin.install.transaction import Write
from slurm_plugin.admin.own_files.manifest import NAME, digest, list_of, read_installed, why_left_alone
from slurm_plugin.admin.own_files.steps import (
    EXECUTABLE,
    FILES,
    FRAGMENTS,
    PACKAGED_UNITS,
    READABLE,
    SECRET,
    SITE_SCRIPTS,
    Step,
    has_content,
)
from slurm_plugin.admin.own_files.templates import (
    GUARD,
    STUBS,
    lua_folder,
    lua_modules,
    render,
    templates_folder,
)
from slurm_plugin.core.comments.signed_comment import KEY_BYTES
from slurm_plugin.core.errors import ConfigError


def plan(
    values: Mapping[str, str],
    places: Mapping[str, str],
    *,
    root: Path,
    gpus: Sequence[Mapping[str, str]],
    with_key: bool,
) -> list[Step]:
    """Return the steps of an install.

    Args:
        values: Name in the templates -> its value.
        places: "etc", "units", "logrotate" and "slurm": the folders of RAD's files, systemd's units, logrotate's files
            and slurm.conf.
        root: Everything is put below this folder, as for a package or an image.
        gpus: The lines of gres.conf, one mapping for each GPU.
        with_key: Create a key for the cluster if there is none.

    Raises:
        ConfigError: A template is missing, or asks for something that has no value.
    """
    folder = templates_folder()
    installed = read_installed(_manifest(root, places))
    wrote = {_below(root, path): found for path, found in installed.items()}
    steps = []
    for template, (place, mode) in FILES.items():
        content = render((folder / template).read_text(), values, gpus=gpus).encode()
        path, packaged = (
            _below(root, place.format(**places)),
            _below(root, f"{PACKAGED_UNITS}/{Path(place).name}"),
        )
        if place.startswith("{units}") and not path.exists() and has_content(packaged, content):
            path = packaged
        steps.append(_step(path, content, mode, wrote))
    for script in sorted(lua_folder().glob("*.lua"), key=_turn):
        folder_of = "{slurm}" if script.name in SITE_SCRIPTS else "{slurm}/rad"
        path = _below(root, f"{folder_of.format(**places)}/{script.name}")
        steps.append(_step(path, script.read_bytes(), READABLE, wrote))
    hooks = f"{places['slurm']}/rad"
    for hook in STUBS:
        path = _below(root, f"{hooks}/{hook}")
        steps.append(_step(path, GUARD.format(hook=f"{places['etc']}/{hook}").encode(), EXECUTABLE, wrote))
    if with_key:
        path = _below(root, values["key"])
        if not path.exists():
            key, owner = secrets.token_bytes(KEY_BYTES), int(values["slurm_uid"])  # SlurmUser's radd reads it
            steps.append(Step(action="write", path=path, content=key, mode=SECRET, owner=owner))
    for template, place in FRAGMENTS.items():
        content = render((folder / template).read_text(), {**values, "hooks": hooks}, gpus=gpus).encode()
        steps.append(Step(action="show", path=_below(root, place.format(**places)), content=content))
    line = f"NodeName={values['node']} ... Gres={_gres(gpus)}"
    path = _below(root, FRAGMENTS["slurm.conf"].format(**places))
    steps.append(Step(action="change", path=path, content=line.encode()))
    if len({gpu["type"] for gpu in gpus}) > 1:
        toml = _below(root, FILES["rad.toml"][0].format(**places))
        steps.append(Step(action="types", path=toml, content=_tables(values["partition"], gpus).encode()))
    return [*steps, Step(action="count", path=path, content=_COUNTED)]


_COUNTED = b"""\
AccountingStorageTRES=gres/gpu,gres/shard
then rad doctor prints TRESBillingWeights and limits, made of the weights and limits that this site has
"""


def gpus_of_nodes(values: Mapping[str, str], gpus: Sequence[Mapping[str, str]]) -> NodeGpus:
    """Return the GPUs of the configured nodes in the notation of slurm.conf and gres.conf.

    Args:
        values: As for `plan`.
        gpus: As for `plan`.
    """
    template = (templates_folder() / "gres.conf").read_text()
    lines = [line for line in render(template, values, gpus=gpus).splitlines() if not line.startswith("#")]
    kinds = {gpu["type"] for gpu in gpus}
    gres = _gres(gpus) if len(kinds) > 1 else _gres(gpus).replace("gpu:", f"gpu:{kinds.pop()}:", 1)
    return NodeGpus(nodes=values["node"], gres=gres, lines="\n".join(lines))


def _gres(gpus: Sequence[Mapping[str, str]]) -> str:
    """Return a node's Gres; with types, at its shards too, if its GPUs are of several types."""
    shards: dict[str, list[int]] = {}
    for gpu in gpus:
        shards.setdefault(gpu["type"], []).append(int(gpu["shards"]))
    if len(shards) < 2:
        return f"gpu:{len(gpus)},shard:{sum(map(sum, shards.values()))}"
    parts = [f"gpu:{kind}:{len(each)}" for kind, each in shards.items()]
    return ",".join([*parts, *(f"shard:{kind}:{sum(each)}" for kind, each in shards.items())])


def _tables(partition: str, gpus: Sequence[Mapping[str, str]]) -> str:
    """Return rad.toml's tables for several GPU types."""
    least: dict[str, int] = {}
    for gpu in gpus:
        least[gpu["type"]] = min(int(gpu["shards"]), least.get(gpu["type"], int(gpu["shards"])))
    rows = [f'[partition.{partition}.gpus."{kind}"]\nshards_per_gpu = {each}' for kind, each in least.items()]
    return "\n".join(rows)


def fitted(steps: Sequence[Step], after: dict[Path, str]) -> list[Step]:
    """Return the steps with RAD's files adapted to the site's files, and remove these from `after`.

    Args:
        steps: As `plan` returns them.
        after: New text of each file that adapting the site's files changed.
    """
    own = {step.path for step in steps if step.action in ("write", "update")} & after.keys()
    return [replace(one, content=after.pop(one.path).encode()) if one.path in own else one for one in steps]


def writes(steps: Sequence[Step], places: Mapping[str, str], *, root: Path) -> list[Write]:
    """Return the new files, the renewed files, and the list of what was written (installed.py).

    Args:
        steps: As `plan` returns them.
        places: As for `plan`.
        root: As for `plan`.

    Raises:
        ConfigError: One cannot be read.
    """
    manifest = _manifest(root, places)
    before = read_installed(manifest)
    by_path = {f"/{step.path.relative_to(root)}": step for step in steps if step.mode != SECRET}
    done = {
        name: {digest(step.content)} for name, step in by_path.items() if step.action in ("write", "update")
    }
    kept = {name: {digest(step.content)} for name, step in by_path.items() if step.action == "keep"}
    after = {**before, **{name: found for name, found in kept.items() if name in before}, **done}
    try:
        found = [
            Write(
                path=step.path,
                old=step.path.read_bytes() if step.action == "update" else None,
                new=step.content,
                mode=step.mode,
                owner=step.owner,
                folder=True,
            )
            for step in steps
            if step.action in ("write", "update")
        ]
        if after != before:
            old = manifest.read_bytes() if manifest.exists() else None
            found.append(Write(path=manifest, old=old, new=list_of(after), folder=True))
    except OSError as exc:
        raise ConfigError(f"{exc.filename}: {exc.strerror}; run as root") from exc
    return found


def have_loaded(steps: Sequence[Step]) -> None:
    """Make slurmctld load renewed Lua files: it does so only when job_submit.lua itself is newer.

    Args:
        steps: As `plan` returns them.
    """
    script = next(step.path for step in steps if step.path.name == "job_submit.lua")
    modules = [step.path for step in steps if step.path.name in lua_modules()]
    with suppress(OSError):  # without permission to write there, nothing was renewed
        if max(path.stat().st_mtime for path in modules) > script.stat().st_mtime:
            os.utime(script)


def _step(path: Path, content: bytes, mode: int, wrote: Mapping[Path, Collection[str]]) -> Step:
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return Step(action="write", path=path, content=content, mode=mode)
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}") from exc
    if found == content:
        return Step(action="keep", path=path, content=content, mode=mode)
    known = (
        [digest(found)] if found in STUBS.values() else wrote.get(path)
    )  # a stub, also if the list is lost
    why = "settings are yours" if path.suffix == ".toml" else why_left_alone(found, known)
    if why is None:
        return Step(action="update", path=path, content=content, mode=mode)
    return Step(action="differs", path=path, content=content, mode=mode, why=why)


def _turn(script: Path) -> tuple[bool, bool, str]:
    """Return the write order of a Lua file: after the files it loads, because Slurm may load it immediately."""
    return (script.name in SITE_SCRIPTS, script.stem in ("rad", "rad_cli"), script.name)


def _manifest(root: Path, places: Mapping[str, str]) -> Path:
    return _below(root, f"{places['etc']}/{NAME}")


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")
