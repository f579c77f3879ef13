from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.simulated_node import main


def test_gpus_and_devices_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int, int]] = []

    def mknod(path: Path, mode: int, device: int) -> None:
        made.append((path.name, os.major(device), os.minor(device)))
        path.touch()

    monkeypatch.setattr(os, "mknod", mknod)
    words = ["2", "81920", f"--folder={tmp_path}/n1", f"--devices={tmp_path}/fakegpu"]
    main(words)
    main(words)
    assert made == [("fakegpu0", 240, 0), ("fakegpu1", 240, 1)]
    physical_gpus = SimulatedGpus(tmp_path / "n1").gpus()
    assert [(physical_gpu.index, physical_gpu.usable_bytes) for physical_gpu in physical_gpus] == [
        (0, 80 * GIB),
        (1, 80 * GIB),
    ]
    # The names that containers and jobs have known these GPUs by, and different ones on every node.
    assert physical_gpus[0].uuid == "GPU-1f1c052e-26c1-537a-b79a-87768d981e8e"
    main([*words[:2], f"--folder={tmp_path}/n2", words[3]])
    assert not {physical_gpu.uuid for physical_gpu in physical_gpus} & {
        physical_gpu.uuid for physical_gpu in SimulatedGpus(tmp_path / "n2").gpus()
    }
