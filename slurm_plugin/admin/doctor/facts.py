"""Facts that `rad doctor`'s checks need, as far as visible from this machine, read once (collect.py)."""

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
    """Facts about one machine; None means not visible from here.

    Attributes:
        config_path: rad.toml.
        config: Its content.
        config_text: Its text.
        config_error: Why it is invalid, and whether a last good copy exists.
        config_readable: Whether every user may read it, as sbatch and rad-estimate do.
        config_copied: Whether hooks have kept a copy of it, for when it is broken.
        slurm_conf_path: slurm.conf.
        slurm_conf_of_shell: Whether only SLURM_CONF of this process names it.
        slurm: Its content.
        gres: gres.conf next to it.
        cgroup: cgroup.conf next to it.
        controllers: The machines that slurmctld may run on; the first is in charge while it runs.
        live: slurmctld's answers.
        limits: slurmdbd's limits for users, accounts and QOS.
        version: Of the installed Slurm.
        plugins: Names of its plugins.
        hooks: "prolog", "taskprolog", "epilog" -> text of the script that slurm.conf names, or of all of them.
        executable: The same -> whether they are executable; missing ones have no entry.
        lua: "job_submit", "cli_filter" -> text of the script next to slurm.conf.
        lua_files: Name -> text of each Lua file in `rad` next to slurm.conf; None if it cannot be read.
        lua_left: The same names, and those of Slurm's two scripts -> why `rad install` would not renew the file; those
            that it would are left out.
        lua_sockets: Lua versions with LuaSocket or lua-posix.
        key_error: Why the cluster's key cannot be used; "" if it can.
        key_fingerprint: Fingerprint of the key here; "" if it cannot be read.
        radd: radd's report on itself, or why it does not answer.
        undecided: Submissions without a decision, as reported to radd since its start, if any within the last day.
        radd_key: Fingerprint of the key that radd signs with; "" if unknown.
        radd_slurm: Version of slurmctld that radd decides for; "" if unknown.
        settings: `in_use` of rad.toml here.
        settings_of: Daemon -> its `in_use`; "" if unknown.
        full: Folders of RAD's whose file systems are full.
        closed_log: paths.log, if radd's user may not write there; "" otherwise.
        radd_here: Whether radd belongs on this machine: its socket is here, or slurm.conf names it as controller.
        units: systemd unit -> "active", "inactive", ...
        learned_for: `LearnedQuantiles.made_for` of the file that site_quantiles names; "" if there is none to be read.
        node: This machine's short name, which may be Slurm's name of it as a node.
        detected: Hardware that slurmd detects here.
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
    slurm_conf_of_shell: bool = False
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
    key_fingerprint: str = ""
    radd: str | None = None
    undecided: int = 0
    radd_key: str = ""
    radd_slurm: str = ""
    settings: str = ""
    settings_of: Mapping[str, str] = field(default_factory=dict)
    full: tuple[str, ...] = ()
    closed_log: str = ""
    radd_here: bool = False
    units: Mapping[str, str] = field(default_factory=dict)
    learned_for: str = ""
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
