"""Read from slurm.conf what a job gets for each GPU if it states nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.core.booking.gpu_defaults import ANY_PARTITION, GpuDefaults
from slurm_plugin.slurm.files.conf_lines import ConfFile, read_conf


def gpu_defaults_of(path: Path) -> dict[str, GpuDefaults]:
    """Return DefCpuPerGPU and DefMemPerGPU of each partition, and of all others under ""; {} if none is set."""
    found = read_conf(path) or ConfFile()
    everywhere = _stated(found.settings, GpuDefaults())
    inherited, each = everywhere, {ANY_PARTITION: everywhere}
    for line in found.lines:
        name = line.get("partitionname", "")
        if name.upper() == "DEFAULT":
            inherited = _stated(line, inherited)
        elif name:
            each[name] = _stated(line, inherited)
    return each if set(each.values()) != {GpuDefaults()} else {}


def _stated(pairs: Mapping[str, str], above: GpuDefaults) -> GpuDefaults:
    cpus, memory_mib = pairs.get("defcpupergpu", ""), pairs.get("defmempergpu", "")
    return GpuDefaults(
        cpus=int(cpus) if cpus.isdecimal() else above.cpus,
        memory_mib=int(memory_mib) if memory_mib.isdecimal() else above.memory_mib,
    )
