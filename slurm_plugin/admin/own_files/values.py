"""Template values for a real installation, as far as this machine can determine them."""

from __future__ import annotations

import pwd
import re
import socket

from slurm_plugin.admin.own_files.templates import templates_folder
from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.load import Paths, TelemetryConfig
from slurm_plugin.core.errors import ConfigError, DeviceError
from slurm_plugin.core.units import GIB, to_mib_down, to_mib_up
from slurm_plugin.monitor.gpus.source import timely_telemetry
from slurm_plugin.slurm.files.conf_lines import expand
from slurm_plugin.slurm.files.installed import installed_version
from slurm_plugin.slurm.versions import SPREADING, traits

_SAY = (
    "add --gpu-memory-mib N, the memory of one GPU in MiB (on a GPU node: memory.total less memory.reserved of "
    "nvidia-smi --query-gpu=memory.total,memory.reserved --format=csv)"
)

UNSHARED_MIB = to_mib_up(GIB)
"""Memory of each GPU that is kept out of its shards for MPS servers (66 MiB each on an H200, one for each user) and
their contexts: in a replay a GPU lacked 0.7 GiB after its last shard was booked, and the job was requeued.
"""


def shards_within(memory_mib: int, shard_mib: int) -> int:
    """Return how many shards a GPU with this usable memory can promise; at least one, if it has any memory.

    Args:
        memory_mib: Usable memory of the GPU.
        shard_mib: Size of one shard.
    """
    return max((memory_mib - UNSHARED_MIB) // shard_mib, min(1, memory_mib // shard_mib))


def install_values(
    *,
    prefix: str,
    etc: str,
    mode: str,
    partition: str,
    node: str | None,
    gpus: int | None,
    gpu_memory_mib: int | None,
    shard_mib: int,
    slurm_user: str,
    slurm_conf: str = "",
    clock: Clock,
    known_memory_mib: int | None = None,
    mps_server: str = "user",
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the values of all templates, and those of each GPU's lines in gres.conf.

    Args:
        prefix: Folder of the virtual environment.
        etc: Folder of RAD's files.
        mode: rad.toml's mode.
        partition: The partition that shares.
        node: Name of the GPU node, or of several in Slurm's short form; None for this machine.
        gpus: GPUs of the node; None counts those of this machine.
        gpu_memory_mib: Usable memory of one GPU; None queries the driver.
        shard_mib: Size of a shard.
        slurm_user: User that slurmctld runs as.
        slurm_conf: Path of slurm.conf; "" where every program finds it.
        clock: Time.
        mps_server: Which jobs on a GPU share an MPS server.
        known_memory_mib: Fallback for `gpu_memory_mib` if there is no GPU to query; None for none.

    Raises:
        ConfigError: The GPUs' memory was not given and cannot be queried here.
    """
    try:
        readings = timely_telemetry(TelemetryConfig(), clock).read()
    except DeviceError as exc:
        gpu_memory_mib = gpu_memory_mib or known_memory_mib
        if gpu_memory_mib is None:
            raise ConfigError(f"no GPU can be read here ({exc}); {_SAY}") from exc
        readings = ()
    memory_mib = gpu_memory_mib or min(
        (to_mib_down(r.usable_bytes) for r in readings if not r.mig and r.healthy), default=0
    )
    if 0 < memory_mib < shard_mib:
        raise ConfigError(
            f"a GPU of {memory_mib} MiB has no shard of {shard_mib} MiB; choose a smaller --shard-mib"
        )
    if memory_mib < shard_mib:
        raise ConfigError(f"no GPU that could be shared; {_SAY}")
    if node is not None and any("[" in name or "]" in name for name in expand(node)):
        raise ConfigError(f"--node {node}: write it like gpu[1-4], as in slurm.conf")
    paths, version = Paths(), installed_version()
    spreads = version is not None and traits(version).spreads_shards
    values = {
        "prefix": prefix,
        "python": f"{prefix}/bin/python",
        "templates": str(templates_folder().resolve()),  # one path for every Python version
        "etc": etc,
        "config": f"{etc}/rad.toml",
        "run": paths.run,
        "state": paths.state,
        "key": f"{etc}/key",
        "socket": paths.socket,
        "log": paths.log,
        "slurm_conf": slurm_conf,
        "slurm_user": slurm_user,
        "slurm_uid": str(_uid_of(slurm_user)),
        "mode": mode,
        "telemetry": "auto",
        "simulated_folder": "",
        "partition": partition,
        "shard_mib": str(shard_mib),
        "sharing": "mps",
        "mps_server": mps_server,
        "gpu_memory_mib": str(memory_mib),
        "shards": str(shards_within(memory_mib, shard_mib)),
        "select_parameters": f"CR_Core_Memory,LL_SHARED_GRES,{SPREADING}" if spreads else "CR_Core_Memory",
        "share_multi_gpu": "true" if spreads else "false",
        "constrain_devices": "no",
        "node": node or socket.gethostname().partition(".")[0],
    }
    if gpus is not None or not readings:
        name = readings[0].name if readings else "gpu"
        alike = {"shards": values["shards"], "type": _type_of(name)}
        return values, [{"device": f"/dev/nvidia{index}", **alike} for index in range(gpus or 1)]
    return values, [
        {
            "device": f"/dev/nvidia{reading.index}",
            "type": _type_of(reading.name),
            "shards": str(shards_within(gpu_memory_mib or to_mib_down(reading.usable_bytes), shard_mib)),
        }
        for reading in readings
    ]


def _type_of(name: str) -> str:
    """Return a GPU's type for gres.conf, spelled as Slurm's AutoDetect=nvml spells it.

    >>> _type_of("NVIDIA H100 80GB HBM3")
    'nvidia_h100_80gb_hbm3'
    """
    return "_".join(re.findall(r"[a-z0-9.-]+", name.lower())) or "gpu"


def _uid_of(user: str) -> int:
    """Return a user's id, by name or number; root's for an unknown user, so that no user is trusted by mistake."""
    try:
        return int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        return 0
