"""Collect facts about this machine for `rad doctor`. Changes nothing; each wait is short."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

from slurm_plugin.admin.doctor.collect_local import (
    COMMAND_S,
    Radd,
    is_closed_to,
    is_full,
    joined,
    key_error,
    key_fingerprint,
    left_in,
    lua_sockets,
    ping,
    program,
    text_of,
    texts_in,
    units,
)
from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.own_files.manifest import NAME as INSTALLED
from slurm_plugin.admin.own_files.steps import SITE_SCRIPTS
from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.in_use import in_use
from slurm_plugin.core.config.last_good import config_in_force, copied_at_s
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import CommandError, ConfigError, DeviceError, SlurmError
from slurm_plugin.core.history.site_quantiles_file import read_learned
from slurm_plugin.core.process.run import run
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.gpus.source import timely_telemetry
from slurm_plugin.monitor.window import read_window, settings_in
from slurm_plugin.mps.servers import CONTROL
from slurm_plugin.slurm.environment import slurm_environment
from slurm_plugin.slurm.files.conf_files import controllers_of, find_slurm_conf, keeps_accounts
from slurm_plugin.slurm.files.conf_lines import ConfFile, read_conf
from slurm_plugin.slurm.files.installed import installed_version, plugins
from slurm_plugin.slurm.node.detected import detect
from slurm_plugin.slurm.node.hook_scripts import lines_of, scripts_of
from slurm_plugin.slurm.queries.limits import Limit, read_limits
from slurm_plugin.slurm.queries.live import Live, ask_slurm

HOOKS = ("prolog", "taskprolog", "epilog")
CONFIGLESS_LUA = Path("/etc/slurm/rad")
"""Second folder where job_submit.lua and cli_filter.lua look: slurmctld sends cli_filter.lua, but no folder with it."""


def gather(config_path: Path, env: Mapping[str, str], clock: Clock) -> Facts:
    """Return the facts visible from this machine. Changes nothing; each wait is short.

    Args:
        config_path: Path of rad.toml.
        env: Environment variables.
        clock: Time.
    """
    config, used, config_error = _config(config_path)
    slurm_conf = find_slurm_conf(used.paths.slurm_conf, env)
    slurm = None if slurm_conf is None else read_conf(slurm_conf)
    settings = {} if slurm is None else slurm.settings
    live, limits = _slurm_answers(slurm_conf)
    version = installed_version()
    scripts = hook_scripts(slurm, slurm_conf, version)
    readings, readings_error = _readings(used, clock)
    gpu_node = used.telemetry.source == "simulated" or Path("/dev/nvidiactl").exists()
    controllers = () if slurm_conf is None else controllers_of(slurm_conf)
    node = socket.gethostname().partition(".")[0]
    named = {name.partition(".")[0] for name in controllers}
    radd_here = Path(used.paths.socket).exists() or node in named
    conf = slurm_conf or CONFIGLESS_LUA
    lua = next((each for each in (conf.with_name("rad"), CONFIGLESS_LUA) if texts_in(each)), CONFIGLESS_LUA)
    scripts_here = (conf.with_name(name) for name in SITE_SCRIPTS)
    radd = ping(used.paths.socket) if radd_here else Radd()
    run_folder = Path(used.paths.run)
    return Facts(
        config_path=config_path,
        config=config,
        config_text=text_of(str(config_path)) or "",
        config_error=config_error,
        config_readable=_for_everybody(config_path),
        config_copied=copied_at_s(config_path) is not None,
        slurm_conf_path=slurm_conf,
        slurm_conf_of_shell=slurm_conf != find_slurm_conf(used.paths.slurm_conf, {}),
        slurm=slurm,
        gres=None if slurm_conf is None else read_conf(slurm_conf.with_name("gres.conf")),
        cgroup=None if slurm_conf is None else read_conf(slurm_conf.with_name("cgroup.conf")),
        controllers=controllers,
        live=live,
        limits=limits,
        version=version,
        plugins=plugins(settings),
        hooks={name: joined(map(str, paths)) for name, paths in scripts.items()},
        executable={
            name: all(os.access(path, os.X_OK) for path in paths if path.exists())
            for name, paths in scripts.items()
            if any(path.exists() for path in paths)
        },
        lua={
            name: None if slurm_conf is None else text_of(str(slurm_conf.with_name(f"{name}.lua")))
            for name in ("job_submit", "cli_filter")
        },
        lua_files=None if slurm_conf is None else texts_in(lua),
        lua_left=left_in((*scripts_here, *lua.glob("*.lua")), config_path.with_name(INSTALLED)),
        lua_sockets=lua_sockets(),
        key_error=key_error(Path(used.paths.key), settings.get("slurmuser", "root") if radd_here else "root"),
        key_fingerprint=key_fingerprint(Path(used.paths.key)),
        radd=radd.state,
        undecided=radd.undecided,
        radd_key=radd.key,
        radd_slurm=radd.slurm,
        settings=in_use(used, config_path),
        settings_of={"radd": radd.settings, "rad-monitor": settings_in(run_folder)},
        full=tuple(
            str(path)
            for path in map(Path, (used.paths.run, used.paths.state, used.paths.log))
            if is_full(path)
        ),
        closed_log=used.paths.log
        if radd_here and is_closed_to(Path(used.paths.log), settings.get("slurmuser", "root"))
        else "",
        radd_here=radd_here,
        units=units(),
        learned_for=read_learned(used.site_quantiles).made_for,
        node=node,
        detected=detect(slurm_conf) if gpu_node and slurm_conf is not None else None,
        gpu_node=gpu_node,
        readings=readings if gpu_node else None,
        readings_error=readings_error if gpu_node else "",
        monitored=read_window(Path(used.paths.run), now_s=clock.now_s()) is not None,
        mps_control=program(CONTROL),
        acls=_acls(Path(used.paths.run)),
        compute_modes=_compute_modes() if gpu_node and used.telemetry.source != "simulated" else {},
    )


def hook_scripts(
    slurm: ConfFile | None,
    path: Path | None,
    version: tuple[int, int, int] | None,
    planned: Collection[Path] = (),
) -> dict[str, tuple[Path, ...]]:
    """Return the scripts that slurmd starts for each hook.

    Args:
        slurm: slurm.conf.
        path: Its path.
        version: Version of the installed Slurm.
        planned: Files that are assumed to exist.
    """
    if slurm is None or path is None:
        return {}
    return {name: scripts_of(lines_of(slurm, name, version), path.parent, planned) for name in HOOKS}


def _for_everybody(path: Path) -> bool:
    """Return whether any user may read a file; True if it does not exist."""
    try:
        return bool(path.stat().st_mode & 0o004)
    except OSError:
        return True


def _slurm_answers(slurm_conf: Path | None) -> tuple[Live | None, tuple[Limit, ...] | None]:
    """Return the answers of slurmctld and slurmdbd; None for one that does not answer or does not exist."""
    if slurm_conf is None:  # scontrol would search the DNS for a controller until its time-out
        return None, None
    asking = slurm_environment(slurm_conf)
    live = ask_slurm(asking)
    if live is None or not keeps_accounts(live.settings):
        return live, None
    try:
        return live, read_limits(live.settings.get("clustername", ""), asking)
    except SlurmError:
        return live, None


def _acls(folder: Path) -> bool | None:
    """Return whether a folder's file system keeps POSIX access control lists; None if unknown (acl(5))."""
    try:
        os.getxattr(folder, "system.posix_acl_access")
    except OSError as exc:
        known = {errno.ENODATA: True, errno.ENOTSUP: False}
        return known.get(exc.errno or 0)
    return True


def _compute_modes() -> dict[int, str]:
    try:
        text = run(
            ["nvidia-smi", "--query-gpu=index,compute_mode", "--format=csv,noheader"], timeout_s=COMMAND_S
        )
    except CommandError:
        return {}
    rows = (line.partition(",") for line in text.splitlines())
    return {int(index): mode.strip() for index, _, mode in rows if index.strip().isdigit()}


def _config(path: Path) -> tuple[Config | None, Config, str]:
    """Return rad.toml, the settings that lead to everything else, and why rad.toml is invalid, if it is."""
    try:
        found = config_in_force(path)
    except ConfigError as exc:
        return None, Config(), str(exc)
    return None if found.trouble else found.config, found.config, found.trouble


def _readings(config: Config, clock: Clock) -> tuple[tuple[GpuReading, ...] | None, str]:
    try:
        return timely_telemetry(config.telemetry, clock).read(), ""
    except DeviceError as exc:
        return None, str(exc)
