"""Define how jobs request GPUs under each policy, and which parts of RAD run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpumemnet.estimators.registry import ESTIMATORS
from lab.config import SHARD_MIB
from replay.plan import Planned
from replay.workloads import model_file
from slurm_plugin.simulate.jobs import HAND_ROUNDING

ESTIMATES = (*ESTIMATORS, "faketensor", "oracle", "none")
"""The estimators that answer for a profile, one that needs the model itself, the trace's own figure, and nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPolicy:
    """One way to give jobs their GPUs.

    Attributes:
        with_rad: Whether our hooks, shims and daemons run; without them it is Slurm alone.
        shared: Whether users ask for shards by hand.
        mps: Whether they run under MPS daemons that the site started, one for each GPU.
        placement: `policy` of rad.toml.
    """

    with_rad: bool = True
    shared: bool = False
    mps: bool = False
    placement: str = ""


POLICIES = {
    "whole": ReplayPolicy(with_rad=False),
    "hand": ReplayPolicy(with_rad=False, shared=True),
    "hand-mps": ReplayPolicy(with_rad=False, shared=True, mps=True),
} | {name: ReplayPolicy(placement=name) for name in ("exclusive", "round_robin", "magm", "lug", "mug")}


def rad_toml(policy: ReplayPolicy, estimates: str) -> tuple[str, ...]:
    """Return the lines of the partition in rad.toml."""
    lines = [f'policy = "{policy.placement}"']
    # Without an estimator a job is shared all the same, where free_min_mib are free (thesis section 6.2.2).
    return (*lines, 'default = "collocate"') if estimates == "none" else tuple(lines)


def alone(job: Planned) -> list[str]:
    """Return the lines that a user writes after a message that the job needs more than one GPU has."""
    return [f"#SBATCH --gpus={job.gpus}", "#RAD policy=exclusive"]


def directives(
    job: Planned, policy: ReplayPolicy, estimates: str, texts: Path, known: Mapping[str, Any]
) -> list[str]:
    """Return the #SBATCH and #RAD lines that ask for a job's GPUs.

    Args:
        job: The job.
        policy: The policy.
        estimates: One of ESTIMATES: whence its need is known.
        texts: Folder of the workloads' model texts, NAME.txt, or traces, NAME.rad.
        known: What workloads.py knows of the workload: the words behind `model=`, and FakeTensor's answer.
    """
    if not policy.shared or job.gpus > 1:
        lines = [f"#SBATCH --gpus={job.gpus}"]
    else:
        shards = -(-round(job.memory_mib * HAND_ROUNDING) // SHARD_MIB)
        lines = [f"#SBATCH --gres=shard:{shards}"]
    if not policy.with_rad or estimates == "none":
        return lines
    if estimates == "oracle":
        return [*lines, f"#RAD memory={job.memory_mib}M"]
    if estimates == "faketensor":
        # It knows no context; its users add none either (thesis section 5.3.2).
        need_mib = known.get("faketensor_mib")
        return [*lines, f"#RAD memory={need_mib}M"] if need_mib else lines
    model = model_file(job.workload, texts)
    ranks = f" gpus={job.gpus}" if job.gpus > 1 else ""
    return lines if model is None else [*lines, f"#RAD model={model} {known['setup']}{ranks}"]
