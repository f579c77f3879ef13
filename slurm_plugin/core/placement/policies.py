"""Placement policies: which of the candidate GPUs comes first, by memory, by activity or in cyclic order."""

from __future__ import annotations

from collections.abc import Callable

from slurm_plugin.core.placement.candidate import CandidateGpu
from slurm_plugin.core.records.submission import PolicyName

PlacementPolicy = Callable[[CandidateGpu, int], tuple[float, ...]]
"""Sort key of a GPU on which the job fits; the lowest is chosen. The number is the index of the GPU that was allocated
last, -1 for none."""

POLICIES: dict[PolicyName, PlacementPolicy] = {
    # MAGM: the most free memory, so that a wrong estimate is least likely to end in an OOM.
    "magm": lambda gpu, last: (-gpu.free_bytes, gpu.activity, gpu.index),
    # LUG: the least compute in use, so that jobs slow each other down least.
    "lug": lambda gpu, last: (gpu.activity, -gpu.free_bytes, gpu.index),
    # MUG: fill the active GPUs first and keep idle ones free as long as possible.
    "mug": lambda gpu, last: (gpu.idle, -gpu.activity, gpu.free_bytes, gpu.index),
    # RR: the next GPU in cyclic order after the one allocated last.
    "round_robin": lambda gpu, last: (gpu.index <= last, gpu.index),
}
