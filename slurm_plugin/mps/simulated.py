"""Fake MPS for simulated GPUs: a limit that fake trainings obey, and a pipe folder that names the GPU.

With a file FOLDER/no-mps it does not start.
"""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.units import to_mib_up


def simulated_mps(folder: Path, run: Path, gpu: str, *, cap_bytes: int | None) -> dict[str, str]:
    """Return the MPS variables of a job.

    Args:
        folder: The folder of the simulated GPUs.
        run: `paths.run`.
        gpu: UUID of the job's GPU.
        cap_bytes: The job's limit; None for no limit.

    Raises:
        MpsError: It does not start here.
    """
    if (folder / "no-mps").exists():
        raise MpsError(f"{folder}/no-mps is there")
    pipe = run / "simulated-mps" / gpu
    try:
        pipe.mkdir(parents=True, exist_ok=True)
        (pipe / "control").touch()
    except OSError as exc:
        raise MpsError(f"{pipe}: {exc.strerror}") from exc
    told = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    if cap_bytes is not None:
        told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={to_mib_up(cap_bytes)}M"
    return told
