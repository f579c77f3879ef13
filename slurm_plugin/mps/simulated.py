"""What stands for MPS on simulated cards: a limit that fake trainings keep to; nothing is started.

With a file FOLDER/no-mps it does not start.
"""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.units import to_mib_up


def simulated_mps(folder: Path, *, cap_bytes: int | None) -> dict[str, str]:
    """Return what a job is told of MPS.

    Args:
        folder: The folder of the simulated cards.
        cap_bytes: What the job may allocate; None for no limit.

    Raises:
        MpsError: It does not start here.
    """
    if (folder / "no-mps").exists():
        raise MpsError(f"{folder}/no-mps is there")
    return {} if cap_bytes is None else {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={to_mib_up(cap_bytes)}M"}
