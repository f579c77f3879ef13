"""Find and fill in the configuration templates of the project.

A `{{name}}` stands for a value. A line with a name that only GPUs have, such as `{{device}}`, is repeated for every
GPU. Comment lines are copied unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from slurm_plugin.admin.own_files.steps import SITE_SCRIPTS
from slurm_plugin.core.errors import ConfigError

_NAME = re.compile(r"\{\{(\w+)\}\}")
_SH = """\
#!/bin/sh
# Of RAD for Slurm, which was uninstalled. A slurmd that was not restarted since still starts this file, and a
# hook that is missing drains its node: remove it once slurmd has been restarted on every node.
"""
STUBS = {
    "prolog.sh": f"{_SH}exit 0\n".encode(),
    "epilog.sh": f"{_SH}exit 0\n".encode(),
    "task_prolog.sh": f'{_SH}echo "unset SLURM_SCRIPT_CONTEXT" # Slurm sets it for a TaskProlog\nexit 0\n'.encode(),
}
"""Hooks after an uninstall: slurmctld may know a newer slurm.conf than a slurmd, which cannot be queried."""
GUARD = """\
#!/bin/sh
# Starts the hook of RAD for Slurm where it is there: a hook that slurm.conf names and that is missing drains its node.
[ ! -x {hook} ] || exec {hook}
"""
"""The script that slurm.conf names: next to it, so that it stays when the folder of the hooks is removed."""
_LUA = "-- Of RAD for Slurm, which is being uninstalled: read as long as the slurm.conf in force names it.\n"
_CALLS = {
    "job_submit.lua": ("slurm_job_submit", "slurm_job_modify"),
    "cli_filter.lua": ("slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit"),
}
_FUNCTION = "function {}() return slurm.SUCCESS end\n"
LUA_STUBS = {
    name: f"{_LUA}{''.join(map(_FUNCTION.format, calls))}return slurm.SUCCESS\n".encode()
    for name, calls in _CALLS.items()
}
"""RAD's versions of Slurm's Lua scripts once slurm.conf loses shards: jobs no longer request them."""


def templates_folder() -> Path:
    """Return the folder gres_conf/ of the installed package, or of the checkout that contains this file.

    Raises:
        ConfigError: Neither exists.
    """
    package = Path(str(resources.files("slurm_plugin")))
    for folder in (package / "gres_conf", package.parent / "gres_conf"):
        if (folder / "rad.toml").is_file():
            return folder
    raise ConfigError(f"{package}: the templates are missing; install the package again")


def lua_folder() -> Path:
    """Return the folder of the Lua files, which are part of the package and are not templates."""
    return Path(__file__).resolve().parents[2] / "lua"


def lua_modules() -> frozenset[str]:
    """Return the names of the Lua files that belong in `rad` next to slurm.conf, including the site's settings."""
    shipped = {path.name for path in lua_folder().glob("*.lua")} - set(SITE_SCRIPTS)
    return frozenset({*shipped, "rad_settings.lua"})


def render(template: str, values: Mapping[str, str], *, gpus: Sequence[Mapping[str, str]] = ()) -> str:
    r"""Return a template's text with all names filled in.

    Args:
        template: The text of a file in gres_conf/.
        values: Name -> its value.
        gpus: Values for a GPU's lines, one mapping for each GPU; there they take precedence over `values`.

    Raises:
        ConfigError: A name has no value.

    >>> render("a={{a}}\nb={{b}} of {{a}}\n", {"a": "1"}, gpus=[{"b": "2"}, {"b": "3"}])
    'a=1\nb=2 of 1\nb=3 of 1\n'
    """
    own = {name for gpu in gpus for name in gpu} - values.keys()
    lines: list[str] = []
    for line in template.splitlines():
        names = [] if line.lstrip().startswith("#") and not line.startswith("#!") else _NAME.findall(line)
        rows = gpus if own.intersection(names) else [{}]
        lines += [_filled(line, {**values, **row}) if names else line for row in rows]
    return "\n".join([*lines, ""])


def _filled(line: str, values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        try:
            return values[match[1]]
        except KeyError as exc:
            raise ConfigError(f"a template requires {match[0]}, which has no value") from exc

    return _NAME.sub(value, line)
