"""A private Slurm, as the lab starts it, over the machine's real GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lab.cluster import Cluster
from lab.place import ClusterSpec, Place
from lab.real_gpus import real_node
from slurm_plugin.core.records.gpu import GpuReading

NODE = "n0"


def start(gpus: Sequence[GpuReading], *, root: Path, venv: Path, cpus: int) -> Cluster:
    """Start a cluster of one node with the GPUs of this machine.

    Args:
        gpus: The GPUs.
        root: Folder of the cluster: short, because MPS makes sockets deep below it.
        venv: The virtual environment that hooks and jobs run in.
        cpus: CPUs that jobs may use.
    """
    cluster = Cluster(Place(root=root, venv=venv))
    node = replace(real_node(NODE, gpus), cpus=cpus, memory_mib=64000)
    cluster.up(ClusterSpec(nodes=(node,), sharing="mps"))
    return cluster


def shorten_window(cluster: Cluster, seconds: int) -> None:
    """Average activity over fewer seconds, so that a job's own is soon known."""
    cluster.set_rad("window_s", str(seconds), restart=False)
    cluster.daemons.stop(f"monitor-{NODE}")
    config = cluster.place.etc / f"rad.{NODE}.toml"
    argv = [f"{cluster.place.venv}/bin/rad-monitor", "--config", str(config)]
    cluster.daemons.start(f"monitor-{NODE}", argv, env=cluster.env())
