"""Folder and specification of a private cluster."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from slurm_plugin.mps.daemon import LONGEST_RUN_FOLDER

SOCKET_PATH_LIMIT = 107
"""Longest path of a Unix socket (unix(7): sun_path holds 108 bytes with the closing NUL)."""

PATIENT_S = 5.0
"""A wait for radd that a busy machine makes none too short, and below the 10 s that Slurm's commands wait."""

_LONGEST_SOCKET = "some-cluster/run/munge/socket"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One compute node.

    Attributes:
        name: Slurm's node name.
        gpu_mib: Memory of each GPU; nodes may differ, and simulated GPUs of one node too.
        devices: Device file of each GPU where they are real; empty where they are simulated.
        gpu_type: Type of its GPUs and shards; "" for the type of all nodes, which shards do not name.
        cpus: CPUs in slurm.conf, many more than the machine has, so that jobs can queue up on it.
        memory_mib: Host memory in slurm.conf.
        line: Further entries in its line of slurm.conf, for example "Sockets=2 CoresPerSocket=8".
    """

    name: str
    gpu_mib: tuple[int, ...] = (40960, 40960, 40960, 40960)
    devices: tuple[str, ...] = ()
    gpu_type: str = ""
    cpus: int = 32
    memory_mib: int = 32000
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster: its nodes and its deviations from the defaults.

    Attributes:
        nodes: The compute nodes, all on this machine.
        slurm_conf: Lines that are added to slurm.conf.
        scheduler: Additions to SchedulerParameters.
        rad_toml: Lines that are added at the end of rad.toml.
        by_memory: Whether only memory decides which jobs share a GPU, so that a test can predict it.
        sharing: `[partition_defaults] sharing` of rad.toml.
        confined: Whether a job reaches only the devices that Slurm gave it; needs cgroup v1 and device files.
        typed: Whether GPUs have a type; without one Slurm 22.05 gives away GPUs with shards in use.
        with_rad: Whether RAD's hooks, shims and daemons run; without them it is Slurm alone, for comparison.
        spread_shards: Whether the shards of one job may lie on several GPUs (Slurm 23.11 and later).
        accounts: Whether there is slurmdbd with a dedicated database, which has the users of accounts.py.
        answer_s: How long a submission waits for radd; tests that need its answer give it time on any machine.
    """

    nodes: tuple[NodeSpec, ...] = (NodeSpec(name="n0"),)
    slurm_conf: tuple[str, ...] = ()
    scheduler: tuple[str, ...] = ()
    rad_toml: tuple[str, ...] = ()
    by_memory: bool = True
    sharing: str = "mps"
    confined: bool = False
    typed: bool = True
    with_rad: bool = True
    spread_shards: bool = False
    accounts: bool = False
    answer_s: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folder of one cluster; it contains everything of it.

    Attributes:
        root: `.rad/NAME` of the checkout, or a folder under /var/tmp if other users could not reach that.
        venv: The virtual environment that hooks and jobs run in.
    """

    root: Path
    venv: Path

    @property
    def etc(self) -> Path:
        """Configuration: slurm.conf and the files that Slurm reads next to it, rad.toml, the keys."""
        return self.root / "etc"

    @property
    def run(self) -> Path:
        """Sockets, pids and node state."""
        return self.root / "run"

    @property
    def log(self) -> Path:
        """Logs of every daemon and hook."""
        return self.root / "log"

    @property
    def slurm_conf(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.etc / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """The socket of the cluster's munged, in a folder that belongs to munge."""
        return self.run / "munge" / "socket"

    def gpus(self, node: str) -> Path:
        """Return the folder of a node's simulated GPUs."""
        return self.root / "gpus" / node

    def short_for_mps(self, checkout: Path) -> Place:
        """Return this place, or a shorter one if the sockets that MPS makes for each GPU and user would not fit."""
        if len(f"{self.root}/run/n0") <= LONGEST_RUN_FOLDER:
            return self
        return Place(root=Path("/var/tmp", f"rad-{_mark(checkout, 4)}"), venv=self.venv)

    def save(self, spec: ClusterSpec, ports: dict[str, int]) -> None:
        """Write down what was started, for people and for `clean`."""
        (self.root / "cluster.json").write_text(json.dumps({"spec": asdict(spec), "ports": ports}, indent=1))


def home_of(checkout: Path) -> tuple[Path, str | None]:
    """Return the folder for everything the checkout creates, and one line if it is not `.rad`.

    Hooks and jobs run as other users, so every parent folder must be open to them; slurm.conf takes no path with
    spaces; and a socket's path has a limit.
    """
    inside = checkout / ".rad"
    reason = None
    if closed := next((f for f in (checkout, *checkout.parents) if not f.stat().st_mode & 0o001), None):
        reason = f"{closed} is closed to other users"
    elif not str(inside).isascii() or any(letter in str(inside) for letter in " \t\"'#=,[]%\\"):
        reason = f"slurm.conf cannot contain the path {inside}"
    elif len(f"{inside}/{_LONGEST_SOCKET}") > SOCKET_PATH_LIMIT:
        reason = f"{inside} is too long for a socket"
    if reason is None:
        return inside, None
    outside = Path("/var/tmp", f"rad-lab-{_mark(checkout, 10)}")
    return outside, f"using {outside}, because {reason}"


def _mark(checkout: Path, digits: int) -> str:
    """Return letters that distinguish one checkout from another."""
    return hashlib.sha256(os.fsencode(checkout)).hexdigest()[:digits]
