"""`rad install`: fill in the configuration files and put them in place, never over a file that is somebody else's."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slurm_plugin.admin import worth
from slurm_plugin.admin.installed import NAME, digest, read_installed, write_installed
from slurm_plugin.admin.templates import lua_folder, render, templates_folder
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.wire import KEY_BYTES

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
            already; "count": what a site with slurmdbd needs besides.
        path: The file.
        content: What it should hold.
        mode: Its mode.
        owner: Who must own it; None for whoever writes it.
    """

    action: Literal["write", "update", "keep", "differs", "show", "change", "count"]
    path: Path
    content: bytes
    mode: int = READABLE
    owner: int | None = None


def plan(
    values: Mapping[str, str],
    places: Mapping[str, str],
    *,
    root: Path,
    gpus: Sequence[Mapping[str, str]],
    with_key: bool,
) -> list[Step]:
    """Return what would be done.

    Args:
        values: What each name in the templates stands for.
        places: "etc", "units", "logrotate" and "slurm": the folders of our files, systemd's units, logrotate's files
            and slurm.conf.
        root: Everything is put below this folder, as for a package or an image.
        gpus: The lines of gres.conf, one mapping for each GPU.
        with_key: Make a key for the cluster if there is none.

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
        if place.startswith("{units}") and not path.exists() and _says(packaged, content):
            path = packaged
        steps.append(_step(path, content, mode, wrote))
    for script in sorted(lua_folder().glob("*.lua")):
        folder_of = "{slurm}" if script.name in SITE_SCRIPTS else "{slurm}/rad"
        path = _below(root, f"{folder_of.format(**places)}/{script.name}")
        steps.append(_step(path, script.read_bytes(), READABLE, wrote))
    if with_key:
        path = _below(root, values["key"])
        if not path.exists():
            key, owner = (
                secrets.token_bytes(KEY_BYTES),
                int(values["slurm_uid"]),
            )  # radd reads it as SlurmUser
            steps.append(Step(action="write", path=path, content=key, mode=SECRET, owner=owner))
    for template, place in FRAGMENTS.items():
        content = render((folder / template).read_text(), values, gpus=gpus).encode()
        steps.append(Step(action="show", path=_below(root, place.format(**places)), content=content))
    shards = sum(int(gpu["shards"]) for gpu in gpus)
    line = f"NodeName={values['node']} ... Gres=gpu:{len(gpus)},shard:{shards}"
    path = _below(root, FRAGMENTS["slurm.conf"].format(**places))
    steps.append(Step(action="change", path=path, content=line.encode()))
    return [*steps, Step(action="count", path=path, content=_accounts(values).encode())]


def _accounts(values: Mapping[str, str]) -> str:
    """Return what makes limits and billing by GPU hold for jobs that share."""
    shards = int(values["shards"])
    weights = worth.line(worth.parse_weights(""), shards, shards)
    return "\n".join(
        [
            "AccountingStorageTRES=gres/gpu,gres/shard",
            f"PartitionName={values['partition']} ... TRESBillingWeights={weights}",
            f"sacctmgr modify qos NAME set MaxTRESPerUser=billing={shards}    where it says gres/gpu=1; others alike",
        ]
    )


def apply(steps: Sequence[Step], places: Mapping[str, str], *, root: Path) -> None:
    """Write the files that are not there, renew those that only we wrote, and note what was written (installed.py).

    Args:
        steps: As `plan` returns them.
        places: As for `plan`.
        root: As for `plan`.

    Raises:
        ConfigError: One cannot be written.
    """
    manifest = _manifest(root, places)
    installed = read_installed(manifest)
    ours = [step for step in steps if step.action in ("write", "update")]
    for step in ours:
        try:
            step.path.parent.mkdir(parents=True, exist_ok=True)
            _put(step)
            if step.mode != SECRET:
                installed[f"/{step.path.relative_to(root)}"] = digest(step.content)
        except OSError as exc:
            raise ConfigError(
                f"{step.path}: {exc.strerror}; run as root, or name a folder with --root"
            ) from exc
    if ours:
        write_installed(manifest, installed)


def _put(step: Step) -> None:
    """Write a new file, never over another; renew one in one step, because a hook may start at any moment."""
    path = step.path if step.action == "write" else step.path.with_name(f".{step.path.name}.new")
    if step.action == "update":
        path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, step.mode)
    with os.fdopen(handle, "wb") as file:
        file.write(step.content)
        if step.owner is not None and os.geteuid() == 0:
            os.fchown(handle, step.owner, -1)
    path.chmod(step.mode)
    if step.action == "update":
        os.replace(path, step.path)


def as_text(steps: Sequence[Step], *, verbose: bool) -> str:
    """Return the plan for a person; `verbose` shows the content of new files too.

    Args:
        steps: What is to be done, in order.
        verbose: Show the content of new files, too.
    """
    lines = []
    for step in steps:
        if step.action == "show":
            lines += [f"add to {step.path}, unless it says so already:", _indented(step.content)]
        elif step.action == "change":
            text = f"change in {step.path} the line of each GPU node, so that its Gres has shards beside its GPUs:"
            lines += [text, _indented(step.content)]
        elif step.action == "count":
            text = f"where slurmdbd keeps accounts, so that limits on GPUs hold for shared jobs too, in {step.path}:"
            lines += [text, _indented(step.content)]
        elif step.action == "differs":
            lines += [f"differs {step.path}: left alone; this is what it would say:", _indented(step.content)]
        else:
            lines.append(f"{step.action} {step.path}")
            ours = step.path.parent.name == "rad" and step.path.suffix == ".lua"
            if verbose and step.action == "write" and step.mode != SECRET and not ours:
                lines.append(_indented(step.content))
    return "\n".join(lines)


def _step(path: Path, content: bytes, mode: int, wrote: Mapping[Path, str]) -> Step:
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return Step(action="write", path=path, content=content, mode=mode)
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}") from exc
    if found == content:
        return Step(action="keep", path=path, content=content, mode=mode)
    ours = (
        wrote.get(path) == digest(found) and path.suffix != ".toml"
    )  # settings are the admin's, even untouched
    return Step(action="update" if ours else "differs", path=path, content=content, mode=mode)


def _says(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _manifest(root: Path, places: Mapping[str, str]) -> Path:
    return _below(root, f"{places['etc']}/{NAME}")


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _indented(content: bytes) -> str:
    lines = content.decode().splitlines()
    return "\n".join(f"    {line}" for line in lines if line and not line.startswith(("#", "--")))
