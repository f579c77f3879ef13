"""What `rad doctor` can see from where it runs: everything that its checks need, read once (gather.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.core.config.load import Config
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.slurm.files.conf_lines import ConfFile
from slurm_plugin.slurm.node.detected import Detected
from slurm_plugin.slurm.queries.limits import Limit
from slurm_plugin.slurm.queries.live import Live


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One machine; None means that it cannot be seen from here.

    Attributes:
        config_path: rad.toml.
        config: Its content.
        config_text: Its text.
        config_error: Why it cannot be used, and whether there is a last good copy.
        config_readable: Whether every user may read it, as sbatch and rad-estimate do.
        config_copied: Whether hooks have kept a copy of it, for when it is broken.
        slurm_conf_path: slurm.conf.
        slurm: Its content.
        gres: gres.conf beside it.
        cgroup: cgroup.conf beside it.
        controllers: The machines that slurmctld may run on, the first in charge as long as it runs.
        live: What slurmctld itself says.
        limits: What slurmdbd lets users, accounts and QOS have.
        version: Of the installed Slurm.
        plugins: Names of its plugins.
        hooks: "prolog", "taskprolog", "epilog" -> text of the script that slurm.conf names, or of all of them.
        executable: The same -> whether they may be run; what is not there has no entry.
        lua: "job_submit", "cli_filter" -> text of the script beside slurm.conf.
        lua_files: Text of each Lua file in `rad` beside slurm.conf, by its name; None where it cannot be read.
        lua_left: The same names, and those of Slurm's two scripts -> why `rad install` would not renew the file; those
            that it would are left out.
        lua_sockets: Lua versions with LuaSocket or lua-posix.
        key_error: Why the cluster's key cannot be used; "" if it can.
        radd: What radd says of itself, or why it does not answer.
        undecided: Submissions that it did not decide, as it heard since it started, if any within the last day.
        radd_here: Whether radd belongs on this machine: its socket is here, or slurm.conf names it as controller.
        units: systemd unit -> "active", "inactive", ...
        learned_age_s: How old learned.json is, in seconds, if every user may read it.
        node: This machine's short name, by which Slurm may know it as a node.
        detected: What slurmd finds here.
        gpu_node: Whether this machine has GPUs, real or simulated.
        readings: Its GPUs.
        readings_error: Why they cannot be read.
        monitored: Whether the monitor's window is fresh.
        mps_control: Path of NVIDIA's control program.
        acls: Whether paths.run lies on a file system with POSIX access control lists.
        compute_modes: GPU index -> "Default", "Exclusive_Process", ... as nvidia-smi says.
    """

    config_path: Path
    config: Config | None = None
    config_text: str = ""
    config_error: str = ""
    config_readable: bool = True
    config_copied: bool = True
    slurm_conf_path: Path | None = None
    slurm: ConfFile | None = None
    gres: ConfFile | None = None
    cgroup: ConfFile | None = None
    controllers: tuple[str, ...] = ()
    live: Live | None = None
    limits: tuple[Limit, ...] | None = None
    version: tuple[int, int, int] | None = None
    plugins: frozenset[str] | None = None
    hooks: Mapping[str, str | None] = field(default_factory=dict)
    executable: Mapping[str, bool] = field(default_factory=dict)
    lua: Mapping[str, str | None] = field(default_factory=dict)
    lua_files: Mapping[str, str | None] | None = None
    lua_left: Mapping[str, str] = field(default_factory=dict)
    lua_sockets: tuple[str, ...] = ()
    key_error: str | None = None
    radd: str | None = None
    undecided: int = 0
    radd_here: bool = False
    units: Mapping[str, str] = field(default_factory=dict)
    learned_age_s: float | None = None
    node: str = ""
    detected: Detected | None = None
    gpu_node: bool = False
    readings: tuple[GpuReading, ...] | None = None
    readings_error: str = ""
    monitored: bool = False
    mps_control: str | None = None
    acls: bool | None = None
    compute_modes: Mapping[int, str] = field(default_factory=dict)

    @property
    def configless(self) -> bool:
        """Return whether Slurm's files here are copies that slurmctld sends (slurm.conf(5), enable_configless)."""
        if self.slurm_conf_path is None:
            return False
        return str(self.slurm_conf_path).startswith("/run/slurm/conf/") or (
            self.slurm_conf_path.parent.name == "conf-cache"
        )
