"""Tell job_submit.lua how to request exclusive GPUs while radd is away: as all shards of a GPU where Slurm needs it.

Before 23.11.5 Slurm may allocate a GPU whose shards are in use as a whole GPU (slurm/versions.py). A job submitted with
`gpu:1` because radd did not answer then collides with sharing jobs and is requeued again and again. So radd leaves a
file next to its socket that shows the shim how to request an exclusive GPU in each partition. The file has an expiry
time, so that it loses effect if radd is removed for good.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_plugin.core.booking.gpu_defaults import GpuDefaults, defaults_of
from slurm_plugin.core.booking.gres_text import GPU_ENVIRONMENT
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.files.atomic import replace_file
from slurm_plugin.radd.protocol.own_files import own_file

log = logging.getLogger("radd")

HOLDS_S = 3600
"""How long the file is valid after radd last wrote it."""
EVERY_S = 300.0


def fallback_of(
    config: Config,
    whole_as_gpu: Mapping[str, bool],
    *,
    leave_jobs: bool,
    gpu_defaults: Mapping[str, GpuDefaults],
    now_s: float,
) -> dict[str, Any]:
    """Return what the shim may do without radd.

    Args:
        config: rad.toml.
        whole_as_gpu: By partition, whether an exclusive GPU is requested as `gpu:1`, so that no change is needed.
        leave_jobs: Whether every job passes through unchanged.
        gpu_defaults: What Slurm gives a job for each GPU by default, by partition; it does so with gres/gpu alone.
        now_s: Seconds since the epoch.
    """
    works = config.mode == "enforce" and config.features.submit and not leave_jobs
    partitions = {
        name: {"shards": settings.shards, "gpu_type": settings.gpu_type}
        for name, settings in config.partitions.items()
        if works
        and settings.collocate
        and settings.default != "leave"
        and not whole_as_gpu.get(name, False)
        and defaults_of(name, gpu_defaults) == GpuDefaults()
        and not settings.gpus  # only radd knows the GPU to request shards of
    }
    return {
        "v": 1,
        "until_s": int(now_s) + HOLDS_S,
        "default_partition": config.default_partition,
        "partitions": partitions,
        "environment": list(GPU_ENVIRONMENT),
    }


def write_fallback(socket: Path, fallback: Mapping[str, Any]) -> None:
    """Write the file for the shim; if it cannot be written, jobs pass through unchanged.

    Args:
        socket: radd's socket; see own_files.py.
        fallback: As `fallback_of` makes it.
    """
    path = own_file(socket, "fallback.json")
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(path, json.dumps(fallback).encode())
    except OSError as exc:
        log.warning("%s: %s; without radd, jobs are submitted unchanged", path, exc.strerror)
