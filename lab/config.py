"""Texts of a private cluster's configuration.

Files that an admin would install are rendered from gres_conf/, so that the templates are tested with every run. Only
what makes the cluster private (ports, folders, a machine that pretends to be larger) is written here.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab import accounts
from lab.daemons import LabError
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.admin.own_files.templates import render, templates_folder
from slurm_plugin.core.units import from_mib
from slurm_plugin.monitor.gpus import simulated_gpus
from slurm_plugin.monitor.gpus.simulated_gpus import GpuSpec
from slurm_plugin.slurm.versions import SPREADING, release_of, traits

RESERVED_MIB = 600
"""Memory of a GPU reserved by the driver: 615 MiB were read on an H200 (driver 580)."""

SHARD_MIB = 1024

GPU_TYPE = "simulated"

_OUR_LINES = ("JobSubmitPlugins", "CliFilterPlugins", "PrologFlags", "Prolog", "TaskProlog", "Epilog")
"""Lines of the template that are omitted for Slurm alone; the shards stay."""

SCHEDULER = "sched_interval=2,batch_sched_delay=0,bf_interval=2,sched_min_interval=0"

CRED_EXPIRE_S = 15
"""Three times the Prolog's time limit. Slurm 22.05 must be given this time before a requeued job may return to its
node, and its default of 120 s is too long for interactive use.
"""

_SLURM_CONF = """\
ClusterName=$name
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$ctld_port
AuthType=auth/munge
AuthInfo=socket=$munge_socket$cred_expire
SlurmUser=$slurm_user
SlurmdUser=root
StateSaveLocation=$root/spool/slurmctld
SlurmdSpoolDir=$root/spool/%n
SlurmctldPidFile=$run/slurmctld.own.pid
SlurmdPidFile=$run/slurmd-%n.own.pid
SlurmctldLogFile=$log/slurmctld.log
SlurmdLogFile=$log/slurmd-%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
MailProg=/bin/true
ReturnToService=2

# No systemd is asked of the machine, cgroups only to confine devices; and it pretends to be larger than it is.
ProctrackType=proctrack/$proctrack
TaskPlugin=task/$task
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
DefMemPerCPU=100

# A person waits for the result.
SchedulerParameters=$scheduler
KillWait=2
MinJobAge=600

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Properties of the machine that complete the specification.

    Attributes:
        host: This machine's short name.
        slurm_user: The user that slurmctld and radd run as.
        slurm_version: (22, 5), (24, 11), ...
        ports: Port of "slurmctld", of each node and, by web_of(node's name), of its rad-monitor.
    """

    host: str
    slurm_user: str
    slurm_version: tuple[int, int]
    ports: dict[str, int]


def shards_of(gpu_mib: int) -> int:
    """Return the number of shards of a GPU with this memory."""
    return (gpu_mib - RESERVED_MIB) // SHARD_MIB


def make_gpus(node: NodeSpec) -> tuple[GpuSpec, ...]:
    """Return a node's simulated GPUs."""
    memory_bytes = [from_mib(mib) for mib in node.gpu_mib]
    return simulated_gpus.make_gpus(node.name, memory_bytes, reserved_bytes=from_mib(RESERVED_MIB))


def slurm_conf(spec: ClusterSpec, place: Place, site: Site) -> str:
    """Return slurm.conf."""
    private = string.Template(_SLURM_CONF).substitute(
        name=f"rad_{place.root.name}".replace("-", "_"),
        host=site.host,
        ctld_port=site.ports["slurmctld"],
        munge_socket=place.munge_socket,
        cred_expire=f",cred_expire={CRED_EXPIRE_S}" if site.slurm_version < (23, 2) else "",
        run=place.run,
        log=place.log,
        root=place.root,
        scheduler=",".join([SCHEDULER, *spec.scheduler]),
        slurm_user=site.slurm_user,
        proctrack="cgroup" if spec.confined else "linuxproc",
        task="cgroup" if spec.confined else "none",
    )
    spreads = traits((*site.slurm_version, 0)).spreads_shards
    if spec.spread_shards and not spreads:
        raise LabError(
            f"shards of one job on several GPUs need Slurm 23.11, this is {release_of((*site.slurm_version, 0))}"
        )
    spread = ",LL_SHARED_GRES" if spreads else ""
    spread += f",{SPREADING}" if spec.spread_shards else ""
    values = {"hooks": str(place.etc), "select_parameters": f"CR_Core_Memory{spread}"}
    managed = _template("slurm.conf", values)
    if not spec.with_rad:
        managed = "\n".join(line for line in managed.splitlines() if not line.startswith(_OUR_LINES))
    nodes = [
        f"NodeName={node.name} NodeHostname={site.host} NodeAddr=127.0.0.1 Port={site.ports[node.name]} "
        f"CPUs={node.cpus} RealMemory={node.memory_mib} "
        f"Gres={_gres(node, typed=spec.typed)} State=UNKNOWN {node.line}".rstrip()
        for node in spec.nodes
    ]
    partitions = [
        "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
        "PartitionName=plain Nodes=ALL MaxTime=INFINITE State=UP",
    ]
    kept = accounts.slurm_conf(place, site.ports) if spec.accounts else ""
    return "\n".join([private, managed, kept, *nodes, *partitions, *spec.slurm_conf, ""])


def _gres(node: NodeSpec, *, typed: bool) -> str:
    if not node.gpu_mib:
        return "(null)"
    shards = sum(map(shards_of, node.gpu_mib))
    gpus = f"gpu:{node.gpu_type or GPU_TYPE}:" if typed else "gpu:"
    named = f"{node.gpu_type}:" if node.gpu_type else ""
    return f"{gpus}{len(node.gpu_mib)},shard:{named}{shards}"


def gres_conf(spec: ClusterSpec, place: Place) -> str:
    """Return gres.conf: each GPU with a device file and shards in proportion to its memory."""
    parts = []
    for node in filter(lambda each: each.gpu_mib, spec.nodes):
        devices = place.root / "dev" / node.name
        files = node.devices or [str(devices / f"gpu{index}") for index in range(len(node.gpu_mib))]
        gpus = [
            {"device": file, "shards": str(shards_of(mib)), "type": node.gpu_type or GPU_TYPE}
            for file, mib in zip(files, node.gpu_mib, strict=True)
        ]
        parts.append(_template("gres.conf", {"node": node.name}, gpus))
    text = "".join(parts)
    return text if spec.typed else re.sub(" Type=[^ ]+", "", text)


def cgroup_conf(spec: ClusterSpec, site: Site) -> str:
    """Return cgroup.conf, such that slurmd starts on any machine if devices are not to be confined.

    22.05 does not know `disabled`, and its automatic choice fails where no cgroup v1 is mounted; if v1 is named, it is
    never used.
    """
    if spec.confined:
        return "CgroupPlugin=cgroup/v1\n" + _template("cgroup.conf", {"constrain_devices": "yes"})
    return f"CgroupPlugin={'disabled' if site.slurm_version >= (23, 11) else 'cgroup/v1'}\n"


def web_of(node: str) -> str:
    """Return the key for the port of a node's rad-monitor."""
    return f"{node}-web"


def rad_toml(spec: ClusterSpec, place: Place, *, node: NodeSpec | None, web_port: int | None = None) -> str:
    """Return rad.toml of a compute node, or of the controller (node is None).

    Args:
        spec: The cluster's specification.
        place: The cluster's folder.
        node: The compute node.
        web_port: Port of its rad-monitor; None for no port.
    """
    shown = node or spec.nodes[0]
    smallest_mib = min(mib for each in spec.nodes for mib in each.gpu_mib)
    values = {
        "mode": "enforce",
        "partition": "gpu",
        "run": place.run if node is None else place.run / node.name,
        "state": place.root / "state",
        "key": place.etc / "key",
        "socket": place.run / "radd.sock",
        "log": place.log,
        "slurm_conf": place.slurm_conf,
        "telemetry": "auto" if shown.devices else "simulated",
        "simulated_folder": "" if shown.devices else place.gpus(shown.name),
        "sharing": spec.sharing,
        "mps_server": "user",
        "share_multi_gpu": "true" if spec.spread_shards else "false",
        "shard_mib": SHARD_MIB,
        "gpu_memory_mib": smallest_mib - RESERVED_MIB,
        "shards": shards_of(smallest_mib),
    }
    text = _template("rad.toml", {name: str(value) for name, value in values.items()})
    # Its nodes also serve the partition `plain`; "auto" would then keep every job on the GPU that Slurm names.
    if not spec.confined:
        text = text.replace('#pin = "auto"', 'pin = "bound"')
    if spec.by_memory:
        text = text.replace("#compute_overcommit = 2.0", "compute_overcommit = 0.0")
    if web_port is not None:
        text = text.replace('#serve = ""', f'serve = "{web_port}"')
    return "\n".join([text, *spec.rad_toml, ""])


def hook(name: str, place: Place) -> str:
    """Return the script that Slurm starts for one of RAD's hooks; a node finds its rad.toml by its name."""
    values = {"python": f"{place.venv}/bin/python", "config": f"{place.etc}/rad.$SLURMD_NODENAME.toml"}
    return _template(name, {**values, "run": f"{place.run}/$SLURMD_NODENAME"})


NEW_CLUSTER = '  proc = "/nowhere", -- a cluster that begins with no saved state knows its shards at once'
"""Informs the shims that a newly started slurmctld restores no state: see rad_request.lua."""


def lua_settings(spec: ClusterSpec, place: Place, slurm_uid: int) -> str:
    """Return rad_settings.lua, which gives the shims the paths of radd and the venv and the trusted users."""
    values = {"socket": place.run / "radd.sock", "slurm_uid": slurm_uid}
    values |= {"python": place.venv / "bin" / "python", "config": place.etc / "rad.toml"}
    text = _template("rad_settings.lua", {name: str(value) for name, value in values.items()})
    return text.replace("\n}", f"\n{NEW_CLUSTER}\n{deadline(spec.answer_s)}\n}}")


def deadline(answer_s: float) -> str:
    """Return the shims' setting of how long a submission waits for radd."""
    return f"  deadline_s = {answer_s:g},"


def _template(name: str, values: Mapping[str, str], gpus: Sequence[Mapping[str, str]] = ()) -> str:
    return render((templates_folder() / name).read_text(), values, gpus=gpus)


STAND_IN_LUA = {
    "job_submit.lua": (
        "function slurm_job_submit(j, p, u) return slurm.SUCCESS end\n"
        "function slurm_job_modify(j, r, p, u) return slurm.SUCCESS end\n"
    ),
    "cli_filter.lua": (
        "function slurm_cli_setup_defaults(o, c) return slurm.SUCCESS end\n"
        "function slurm_cli_pre_submit(o, p) return slurm.SUCCESS end\n"
        "function slurm_cli_post_submit(o, j, s) return slurm.SUCCESS end\n"
    ),
}
"""Shims that do nothing, to measure the cost of RAD's."""
