"""Find what is installed of Slurm on this machine, from its programs and plugins and not from a daemon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.core.errors import CommandError, SlurmError
from slurm_plugin.core.process.run import run
from slurm_plugin.slurm.environment import slurm_environment
from slurm_plugin.slurm.versions import Version, parse_version

PLUGIN_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/local/lib/slurm",
)
"""Plugin folders of Debian, the RPMs and a manual build; slurm.conf may name others (PluginDir)."""

_ANSWER_S = 5.0


def installed_version() -> Version | None:
    """Return the version of the installed Slurm; None if there is none."""
    for program in ("slurmctld", "slurmd", "sinfo"):
        try:
            return parse_version(run([program, "-V"], timeout_s=_ANSWER_S))
        except (CommandError, SlurmError):
            continue
    return None


def version_in_use(slurm_conf: Path | str | None) -> Version:
    """Return the version of Slurm's commands, without loading what calls the others.

    Args:
        slurm_conf: Path for SLURM_CONF; None or "" lets the command find it.

    Raises:
        SlurmError: They are not here, or do not answer.
    """
    try:
        return parse_version(
            run(["scontrol", "--version"], timeout_s=_ANSWER_S, env=slurm_environment(slurm_conf))
        )
    except CommandError as exc:
        raise SlurmError(str(exc)) from exc


def plugins(settings: Mapping[str, str]) -> frozenset[str] | None:
    """Return the names of the installed plugins, such as "job_submit_lua"; None if no plugin folder is found.

    Args:
        settings: slurm.conf, names in lower case.
    """
    folders = settings.get("plugindir", "").split(":") if settings.get("plugindir") else PLUGIN_FOLDERS
    there = [Path(folder) for folder in folders if Path(folder).is_dir()]
    return frozenset(path.stem for folder in there for path in folder.glob("*.so")) if there else None
