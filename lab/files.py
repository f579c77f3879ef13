"""Write the files of a private cluster, laid out as by an admin."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import stat
from pathlib import Path

from lab import config
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.files.atomic import rewrite_file
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus

HOOKS = ("prolog.sh", "task_prolog.sh", "epilog.sh")
SIMULATED_DEVICE_MAJOR = 240
"""From the range that Linux keeps for local use (admin-guide/devices.txt), so no real device is behind it."""


def is_user(name: str) -> bool:
    """Return whether the machine has such a user."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def rewrite(path: Path, text: str) -> None:
    """Change a file of a running cluster in one step; owner and mode stay.

    A daemon may be reading it: Slurm continues a reconfigure after `scontrol` has returned, and a daemon that finds the
    file emptied, not yet written, ends.
    """
    rewrite_file(path, text.encode())


def munge_user() -> str:
    """Return the user that munged runs as."""
    return "munge" if is_user("munge") else "root"


def write_files(place: Place, spec: ClusterSpec, site: config.Site) -> None:
    """Write every file of a cluster into a new folder."""
    shutil.rmtree(place.root, ignore_errors=True)
    owner = pwd.getpwnam(site.slurm_user)
    for folder in (place.etc, place.run, place.log, place.root / "state", place.root / "spool" / "slurmctld"):
        folder.mkdir(parents=True)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    for node in spec.nodes:
        _write_node(place, spec, node, site.ports[config.web_of(node.name)])
    place.slurm_conf.write_text(config.slurm_conf(spec, place, site))
    (place.etc / "gres.conf").write_text(config.gres_conf(spec, place))
    (place.etc / "rad.toml").write_text(config.rad_toml(spec, place, node=None))
    (place.etc / "cgroup.conf").write_text(config.cgroup_conf(spec, site))
    for name in HOOKS:
        (place.etc / name).write_text(config.hook(name, place))
        (place.etc / name).chmod(0o755)
    _write_secret(place.etc / "key", secrets.token_bytes(32), site.slurm_user)
    _write_secret(place.etc / "munge.key", secrets.token_bytes(128), munge_user())
    _write_lua(spec, place, owner.pw_uid)


def _write_node(place: Place, spec: ClusterSpec, node: NodeSpec, web_port: int) -> None:
    (place.run / node.name).mkdir()
    (place.root / "spool" / node.name).mkdir()
    if not node.devices:
        SimulatedGpus.create(place.gpus(node.name), config.make_gpus(node))
        _make_devices(place.root / "dev" / node.name, len(node.gpu_mib))
    text = config.rad_toml(spec, place, node=node, web_port=web_port)
    (place.etc / f"rad.{node.name}.toml").write_text(text)


def _write_lua(spec: ClusterSpec, place: Place, slurm_uid: int) -> None:
    """Write the shims: Slurm's two files next to slurm.conf, RAD's modules in a folder."""
    source = next(place.venv.glob("lib/python3*/site-packages/slurm_plugin/lua"))
    folder = place.etc / "rad"
    folder.mkdir()
    for path in source.glob("*.lua"):
        shutil.copy(path, place.etc if path.name in config.STAND_IN_LUA else folder)
    (folder / "rad_settings.lua").write_text(config.lua_settings(spec, place, slurm_uid))


def _make_devices(folder: Path, count: int) -> None:
    """Create the device files that gres.conf names; plain files where device nodes may not be created."""
    folder.mkdir(parents=True)
    for index in range(count):
        path = folder / f"gpu{index}"
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(SIMULATED_DEVICE_MAJOR, index))
        except PermissionError:
            path.touch()


def _write_secret(path: Path, data: bytes, user: str) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)
    os.chown(path, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    path.chmod(0o600)
