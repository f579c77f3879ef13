"""Make simulated GPUs: python -m slurm_plugin.monitor.gpus.simulated_node COUNT MIB [--folder F] [--devices P].

For a container or a machine without GPUs, run as root: the GPUs are files in FOLDER, which rad.toml names as
`simulated_folder`, and P0, P1, ... are devices that gres.conf can name. It may be run again.
"""

from __future__ import annotations

import argparse
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

from slurm_plugin.core.units import from_mib
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.simulated_gpus import make_gpus

ROOT = "/run/rad-gpus"
DEVICES = "/dev/fakegpu"
DEVICE_MAJOR = 240
"""From the range that Linux keeps for local use (admin-guide/devices.txt), so no real device is behind it."""


def make_devices(prefix: str, count: int) -> None:
    """Make the device files, open to all.

    Args:
        prefix: Path without the number: "/dev/nvidia".
        count: How many.

    Raises:
        OSError: They may not be made here.
    """
    for index in range(count):
        path = Path(f"{prefix}{index}")
        if not path.exists():
            os.mknod(path, stat.S_IFCHR, os.makedev(DEVICE_MAJOR, index))
            path.chmod(0o666)


def main(argv: Sequence[str] | None = None) -> None:
    """Make GPUs and devices."""
    parser = argparse.ArgumentParser(description="Make a node's simulated GPUs.")
    parser.add_argument("count", type=int, help="number of GPUs")
    parser.add_argument("mib", type=int, help="memory of each in MiB")
    parser.add_argument("--folder", type=Path, default=Path(ROOT, socket.gethostname()))
    parser.add_argument("--devices", default=DEVICES, metavar="P")
    options = parser.parse_args(argv)
    make_devices(options.devices, options.count)
    gpus = make_gpus(options.folder.name, [from_mib(options.mib)] * options.count)
    SimulatedGpus.create(options.folder, gpus)


if __name__ == "__main__":
    main()
