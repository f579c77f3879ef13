from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.booking.gpu_defaults import GpuDefaults
from slurm_plugin.slurm.files.gpu_defaults import gpu_defaults_of

SLURM_CONF = """\
DefCPUPerGPU=2
PartitionName=early Nodes=ALL
PartitionName=DEFAULT DefMemPerGPU=3000
PartitionName=gpu Nodes=ALL defcpupergpu=4
PartitionName=zero Nodes=ALL DefCpuPerGPU=0 DefMemPerGPU=0
"""


def test_partitions_come_before_default_lines_and_those_before_the_cluster(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(SLURM_CONF)
    assert gpu_defaults_of(path) == {
        "": GpuDefaults(cpus=2),
        "early": GpuDefaults(cpus=2),
        "gpu": GpuDefaults(cpus=4, memory_mib=3000),
        "zero": GpuDefaults(cpus=0, memory_mib=0),
    }


def test_a_cluster_without_them_has_none(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("DefMemPerCPU=100\nPartitionName=gpu Nodes=ALL\n")
    assert gpu_defaults_of(path) == {}
    assert gpu_defaults_of(tmp_path / "missing") == {}
