"""A private Slurm, as the lab starts it, over the machine's real GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lab.cluster import Cluster
from lab.config import RESERVED_MIB, Site
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.gpu import GpuReading
from slurm_plugin.core.units import to_mib

NODE = "n0"


class RealCluster(Cluster):
    """The lab's cluster with /dev/nvidiaN and NVML in place of its simulation."""

    def _write(self, spec: ClusterSpec, site: Site) -> None:
        super()._write(spec, site)
        gres = self.place.etc / "gres.conf"
        devices = re.escape(str(self.place.root / "dev" / NODE))
        gres.write_text(re.sub(rf"{devices}/gpu(\d+)", r"/dev/nvidia\1", gres.read_text()))
        for path in self.place.etc.glob("rad*.toml"):
            text = re.sub(r'(?m)^source = "simulated"$', 'source = "auto"', path.read_text())
            path.write_text(re.sub(r"(?m)^simulated_folder = .*$", 'simulated_folder = ""', text))


def start(gpus: Sequence[GpuReading], *, root: Path, venv: Path, checkout: Path, cpus: int) -> RealCluster:
    """Start a cluster of one node with all GPUs of this machine.

    Args:
        gpus: The GPUs.
        root: Folder of the cluster: short, because MPS makes sockets deep below it.
        venv: The virtual environment that hooks and jobs run in.
        checkout: The source.
        cpus: CPUs that jobs may use.
    """
    # The lab counts a card's memory with the driver's reserve in it.
    memory = tuple(to_mib(gpu.usable_bytes) - 1 + RESERVED_MIB for gpu in gpus)
    cluster = RealCluster(Place(root=root, venv=venv), checkout=checkout)
    node = NodeSpec(name=NODE, gpu_mib=memory, cpus=cpus, memory_mib=64000)
    cluster.up(ClusterSpec(nodes=(node,), sharing="mps"))
    return cluster
