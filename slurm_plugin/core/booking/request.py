"""Convert the message of the submission hooks to a JobRequest.

Numbers arrive as Slurm stores them, where the largest values of a type mean "not set" (slurm.h: NO_VAL, INFINITE and
their 16- and 64-bit forms).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from slurm_plugin.core.booking.gres_text import count_of, others, parse_gres
from slurm_plugin.core.comments.signed_comment import read_comment
from slurm_plugin.core.errors import WireError
from slurm_plugin.core.records.submission import JobRequest

_LARGEST = 0x7FFFFFFF
_NO_VAL_16 = (0xFFFE, 0xFFFF)


def request_from(
    message: Mapping[str, Any], *, honour_reserved_parts: bool = True, honour_new_controller: bool = True
) -> JobRequest:
    """Return the job that a message describes.

    Args:
        message: job_desc fields by their Lua name; missing and null both mean "not set".
        honour_reserved_parts: Whether this Slurm starts no shards in a reservation of parts of nodes.
        honour_new_controller: Whether a slurmctld of this Slurm that has just started refuses shards.

    Raises:
        WireError: A field is of the wrong kind, or there is no user_id.
    """
    user_id = _number(message, "user_id")
    if user_id is None:
        raise WireError("a submission without user_id")
    per_node, per_task = _text(message, "gres"), _text(message, "tres_per_task")
    return JobRequest(
        user_id=user_id,
        partition=_text(message, "partition"),
        gres=parse_gres(per_node),
        gres_per_job=parse_gres(_text(message, "tres_per_job")),
        gres_per_task=parse_gres(per_task),
        gres_per_socket=parse_gres(_text(message, "tres_per_socket")),
        cpus_per_gpu=_per_gpu(message, "cpus_per_tres"),
        memory_per_gpu_mib=_per_gpu(message, "mem_per_tres"),
        states_memory=any(message.get(name) is not None for name in ("min_mem_per_node", "min_mem_per_cpu")),
        nodes=_nodes(message),
        tasks=_tasks(message),
        cpus_per_task=_each(message, "cpus_per_task"),
        cpus_per_node=_each(message, "pn_min_cpus"),
        comment=read_comment(_text(message, "comment") or ""),
        script=_text(message, "script"),
        heterogeneous=message.get("heterogeneous") is True,
        recurs=message.get("recurs") is True,
        interactive=message.get("interactive") is True,
        whole_nodes=message.get("whole_nodes") is True,
        before_shards=honour_new_controller and message.get("new_controller") is True,
        other_gres=others(per_node, keep_prefix=False),
        other_per_task=others(per_task, keep_prefix=True),
        binds_gpus="gpu" in (_text(message, "tres_bind") or ""),
        gpu_only_option=_gpu_only_option(message, honour_reserved_parts=honour_reserved_parts),
    )


def _tasks(message: Mapping[str, Any]) -> int | None:
    """Return the tasks of a job; Slurm 24.11 and 26.05 do not count those requested by node yet, as 22.05 does."""
    tasks, each = _number(message, "num_tasks"), _each(message, "ntasks_per_node")
    if tasks is not None or each is None:
        return tasks
    return each * (_number(message, "min_nodes") or 1)


def _nodes(message: Mapping[str, Any]) -> int | None:
    """Return the most nodes that options imply; only Slurm knows how many the memory of tasks takes.

    >>> _nodes({"min_nodes": 1, "max_nodes": 2}), _nodes({"features": "*1*3"}), _nodes({"num_tasks": 2})
    (2, 4, None)
    >>> _nodes({"num_tasks": 20, "cpus_per_task": 2, "cpus_of_node": 32})
    2
    """
    counted = sum(map(int, re.findall(r"\*(\d{1,9})", _text(message, "features") or "")))  # of a constraint
    tasks, each = _number(message, "num_tasks"), _each(message, "ntasks_per_node")
    spread = -(-tasks // each) if tasks and each else 0
    cpus, of_node = (tasks or 1) * (_each(message, "cpus_per_task") or 1), _number(message, "cpus_of_node")
    if tasks and tasks > 1 and of_node and cpus > of_node:
        spread = max(spread, -(-cpus // of_node))
    stated = (_number(message, "min_nodes"), _number(message, "max_nodes"), counted, spread)
    return max(filter(None, stated), default=None)


def _each(message: Mapping[str, Any], name: str) -> int | None:
    """Return a count of 16 bits, if it is stated."""
    count = _number(message, name)
    return None if count in (0, *_NO_VAL_16) else count


def _gpu_only_option(message: Mapping[str, Any], *, honour_reserved_parts: bool) -> str | None:
    if "gpu" in (_text(message, "tres_freq") or ""):
        return "--gpu-freq"
    if _number(message, "ntasks_per_gpu") not in (None, 0, *_NO_VAL_16):
        return "--ntasks-per-gpu"
    if message.get("recurs") is True:
        return "scrontab"  # not rerun after a failure: each of its runs is a restart in Slurm
    if honour_reserved_parts and message.get("reserves_parts") is True:
        return "--reservation of GPUs"
    if _text(message, "container"):
        return "--container"  # no limit of RAD reaches into an OCI container, and on 22.05 no variable does
    return _text(message, "gpu_only_option")


def _per_gpu(message: Mapping[str, Any], name: str) -> int | None:
    return count_of(parse_gres(_text(message, name)), "gpu") or None


def _text(message: Mapping[str, Any], name: str) -> str | None:
    value = message.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise WireError(f"{name} is no text")
    return value


def _number(message: Mapping[str, Any], name: str) -> int | None:
    value = message.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WireError(f"{name} is no count")
    return value if value <= _LARGEST or name == "user_id" else None
