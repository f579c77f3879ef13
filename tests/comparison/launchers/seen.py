"""What a job of a launcher prints: its GPUs, and what launchers read of Slurm's variables."""

from __future__ import annotations

import os

NAMES = (
    *(
        "SLURM_JOB_PARTITION",
        "SLURM_GPUS_ON_NODE",
        "SLURM_GPUS_PER_NODE",
        "SLURM_GPUS_PER_TASK",
        "SLURM_GPUS",
    ),
    *("SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"),
)


def seen() -> str:
    """Return one line."""
    gpus = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    reported = " ".join(f"{name}={os.environ.get(name, '')}" for name in NAMES)
    return f"{len(gpus)} GPUs {' '.join(str(int(gpu) >= 0) for gpu in gpus)} {reported}"


if __name__ == "__main__":
    print(seen())
