"""Placement policies: choose among the candidate GPUs by memory, by activity or in cyclic order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.placement.candidate import CandidateGpu
from slurm_plugin.core.records.submission import PolicyName

Policy = Callable[[Sequence[CandidateGpu], Ledger, Sequence[CandidateGpu]], CandidateGpu]


def most_available_memory(
    candidates: Sequence[CandidateGpu], ledger: Ledger, gpus: Sequence[CandidateGpu]
) -> CandidateGpu:
    """MAGM: the most free memory, so that a wrong estimate is least likely to end in an OOM.

    Args:
        candidates: GPUs on which the job fits; at least one.
        ledger: All allocations, and the GPU that was allocated last.
        gpus: All GPUs that were considered.
    """
    return min(candidates, key=lambda gpu: (-gpu.free_bytes, gpu.activity, gpu.index))


def least_utilised(
    candidates: Sequence[CandidateGpu], ledger: Ledger, gpus: Sequence[CandidateGpu]
) -> CandidateGpu:
    """LUG: the least compute in use, so that jobs slow each other down least.

    Args:
        candidates: GPUs on which the job fits; at least one.
        ledger: All allocations, and the GPU that was allocated last.
        gpus: All GPUs that were considered.
    """
    return min(candidates, key=lambda gpu: (gpu.activity, -gpu.free_bytes, gpu.index))


def most_utilised(
    candidates: Sequence[CandidateGpu], ledger: Ledger, gpus: Sequence[CandidateGpu]
) -> CandidateGpu:
    """MUG: fill the active GPUs first and keep idle ones free as long as possible.

    Args:
        candidates: GPUs on which the job fits; at least one.
        ledger: All allocations, and the GPU that was allocated last.
        gpus: All GPUs that were considered.
    """
    return min(candidates, key=lambda gpu: (gpu.idle, -gpu.activity, gpu.free_bytes, gpu.index))


def round_robin(
    candidates: Sequence[CandidateGpu], ledger: Ledger, gpus: Sequence[CandidateGpu]
) -> CandidateGpu:
    """RR: the next GPU in cyclic order after the one allocated last.

    Args:
        candidates: GPUs on which the job fits; at least one.
        ledger: All allocations, and the GPU that was allocated last.
        gpus: All GPUs that were considered.
    """
    last = next((gpu.index for gpu in gpus if gpu.uuid == ledger.last_gpu), -1)
    return min(candidates, key=lambda gpu: (gpu.index <= last, gpu.index))


POLICIES: dict[PolicyName, Policy] = {
    "magm": most_available_memory,
    "lug": least_utilised,
    "mug": most_utilised,
    "round_robin": round_robin,
}
