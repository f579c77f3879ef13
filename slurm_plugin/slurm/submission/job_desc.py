"""Convert options as users type them to the job_desc that Slurm makes of them for job_submit.

There are two callers: `login/interactive.py`, for an srun or salloc that has not reached slurmctld yet, and the dry
run, for an sbatch that was not typed yet. `core/booking/request.py` reads both, as it reads the job_desc from Slurm
itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.units import KIB, MIB

_NOT_CLEARED = ("cpus-per-gpu", "mem-per-gpu", "gpu-bind", "gpu-freq", "ntasks-per-gpu")
"""Options that Slurm accepts only with gres/gpu, and that a cli_filter cannot clear."""


def typed_desc(options: Mapping[str, str], *, comment: str, user_id: int) -> dict[str, Any]:
    """Return the job_desc of an srun or salloc, which has options that can only be changed on the login node.

    Args:
        options: Options by their long name.
        comment: The job's comment.
        user_id: The user.
    """
    alone = next((f"--{name}" for name in _NOT_CLEARED if options.get(name)), None)
    return _common(options, comment, user_id) | {"gpu_only_option": alone}


def batch_desc(options: Mapping[str, str], *, comment: str, user_id: int) -> dict[str, Any]:
    """Return the job_desc of an sbatch, as slurmctld will have it.

    Args:
        options: Options by their long name (sbatch_options.py).
        comment: The job's comment, with the text that the login node added.
        user_id: The user.
    """
    per_gpu = {"cpus_per_tres": "cpus-per-gpu", "mem_per_tres": "mem-per-gpu", "tres_freq": "gpu-freq"}
    fields = {field: f"gres/gpu:{options[name]}" for field, name in per_gpu.items() if options.get(name)}
    if options.get("gpu-bind") or "gpu" in options.get("tres-bind", ""):
        fields["tres_bind"] = f"gres/gpu:{options.get('gpu-bind', '')}"
    common = _common(options, comment, user_id)
    most, gpus = common["max_nodes"], count_of(parse_gres(common["tres_per_job"]), "gpu")
    return {
        **common,
        **fields,
        "max_nodes": min(most, gpus) if most and gpus else most,  # as sbatch sends --gpus=1 -N1-2
        "num_tasks": _count(options.get("ntasks")) or _tasks_of_cores(options),
        "ntasks_per_gpu": _count(options.get("ntasks-per-gpu")),
        "heterogeneous": "hetjob" in options,
    }


def _common(options: Mapping[str, str], comment: str, user_id: int) -> dict[str, Any]:
    per_node = [options.get("gres"), _gpus(options.get("gpus-per-node"))]
    per_task = [options.get("tres-per-task"), _gpus(options.get("gpus-per-task"))]
    nodes = _nodes(options.get("nodes") or "")
    return {
        "user_id": user_id,
        "partition": options.get("partition"),
        "gres": ",".join(part for part in per_node if part),
        "tres_per_job": _gpus(options.get("gpus")),
        "tres_per_task": ",".join(part for part in per_task if part),
        "tres_per_socket": _gpus(options.get("gpus-per-socket")),
        "min_nodes": min(nodes, default=None),
        "max_nodes": max(nodes, default=None),
        "features": options.get("constraint"),
        "num_tasks": _count(options.get("ntasks")),
        "ntasks_per_node": _count(options.get("ntasks-per-node")),
        "whole_nodes": options.get("exclusive") in ("", "exclusive"),  # or "user", "mcs", "oversubscribe"
        "cpus_per_task": _count(options.get("cpus-per-task")),
        "pn_min_cpus": _count(options.get("mincpus")),
        "min_mem_per_node": options.get("mem"),
        "min_mem_per_cpu": options.get("mem-per-cpu"),
        "container": options.get("container"),
        "comment": comment,
    }


def _gpus(text: str | None) -> str | None:
    """Return the value of a --gpus option as GRES: "2" is gpu:2, "a100:2" is gpu:a100:2."""
    return ",".join(f"gpu:{part}" for part in text.split(",")) if text else None


def _nodes(text: str) -> list[int]:
    """Return the counts in "4" and "1-4", and in "1,4" and "1-4:2", which 22.05 refuses; nothing for other text."""
    times = {"": 1, "k": KIB, "m": MIB}
    found = re.findall(r"(\d{1,9})([km]?)", text.partition(":")[0].lower())
    return [int(count) * times[unit] for count, unit in found]


def _tasks_of_cores(options: Mapping[str, str]) -> int | None:
    """Return the tasks that sbatch counts where a number of nodes, or -B, stands next to sockets, cores or threads."""
    nodes = _nodes(options.get("nodes") or "1")
    alone = options.get("ntasks-per-node") is None and {"nodes", "extra-node-info"} & {*options}
    shape = [options.get(name, "") for name in ("sockets-per-node", "cores-per-socket", "threads-per-core")]
    each = map(_count, (*options.get("extra-node-info", "").split(":"), *shape))
    counts = [count for count in each if count]
    return min(nodes) * math.prod(counts) if alone and counts and len({*nodes}) == 1 else None


def _count(text: str | None) -> int | None:
    """Return the least number of "4" or "2-4"; None for other text."""
    first = (text or "").partition("-")[0]
    return int(first) if first.isdigit() else None
