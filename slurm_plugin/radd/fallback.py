"""What job_submit.lua does while radd is away: one GPU becomes all shards of a GPU, where Slurm needs that.

Before 23.11.5 Slurm gives a GPU whose shards are in use away as a whole (slurm/versions.py). A job that went on with
`gpu:1` because radd did not answer then collides with jobs that share, and returns to the queue again and again. So
radd leaves a file beside its socket, which tells the shim what a GPU of one's own is in each partition. It says until
when it holds, so that a radd that was taken away for good is forgotten.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_plugin.core.booking.gres_text import GPU_ENVIRONMENT
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.files.atomic import replace_file
from slurm_plugin.radd.own_files import own_file

log = logging.getLogger("radd")

HOLDS_S = 3600
"""After radd last wrote it."""
EVERY_S = 300.0


def fallback_of(
    config: Config,
    whole_as_gpu: Mapping[str, bool],
    *,
    leave_jobs: bool,
    now_s: float,
) -> dict[str, Any]:
    """Return what the shim may do without radd.

    Args:
        config: rad.toml.
        whole_as_gpu: By partition, whether a GPU of one's own is asked for by `gpu:1`, so that nothing needs doing.
        leave_jobs: Whether every job is left as it is.
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
        and not settings.gpus  # all shards of which GPU, only radd can say
    }
    return {
        "v": 1,
        "until_s": int(now_s) + HOLDS_S,
        "default_partition": config.default_partition,
        "partitions": partitions,
        "environment": list(GPU_ENVIRONMENT),
    }


def write_fallback(socket: Path, fallback: Mapping[str, Any]) -> None:
    """Leave the file for the shim; where it cannot be written, jobs go on as they were submitted.

    Args:
        socket: radd's socket; see own_files.py.
        fallback: As `fallback_of` makes it.
    """
    path = own_file(socket, "fallback.json")
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(path, json.dumps(fallback).encode())
    except OSError as exc:
        log.warning("%s: %s; without radd jobs go on as they were submitted", path, exc.strerror)
