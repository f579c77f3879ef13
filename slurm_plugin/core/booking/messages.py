"""What sbatch, srun and salloc say of a decision: every line for users that `policy.py` makes, and nothing else.

`python3 -m lab messages` prints them all, with those of every other place; the site has them as a page.
"""

from __future__ import annotations

from slurm_plugin.core.records.submission import MemoryEstimate
from slurm_plugin.core.units import human

NO_GPU = "RAD: the job asks for no GPU; add --gpus=1"
HETEROGENEOUS = "components of a heterogeneous job do not share"
SEVERAL_NODES = "jobs of several nodes do not share"
SEVERAL_GPUS = "jobs of several GPUs do not share here"
NEED_UNKNOWN = "its GPU memory is not known"
EXCLUSIVE = "policy=exclusive"
NO_FILE = "RAD: of a script that comes on standard input, or from a program, no model is read; name its file to sbatch"
SHARDS_OF_WHOLE_NODES = (
    "RAD: Slurm never starts a job that asks for shards and takes whole nodes (--exclusive, or a partition with "
    "OverSubscribe=EXCLUSIVE); leave out --exclusive, or submit it with sbatch and --gpus=1"
)


def reserves(
    booked_bytes: int,
    estimate: MemoryEstimate | None,
    *,
    processes: int = 1,
    gpus: int = 1,
    share: float | None = None,
    cap_bytes: int | None = None,
    compute: tuple[int, int] | None = None,
    max_slowdown: float = 0.0,
) -> str:
    """Say what part of a GPU is reserved, and why.

    Args:
        booked_bytes: What is reserved.
        estimate: The need of one process; None if it is unknown.
        processes: How many of them share the GPU.
        gpus: GPUs of the job, each with one process.
        share: Share of jobs for which that is enough; None if nothing tells.
        cap_bytes: What the job may hold while nobody else needs it; None if no more.
        compute: Shards that it asks for because of its compute, and the shards of a GPU; None if memory decides.
        max_slowdown: What the partition promises; 0 if nothing.

    >>> from slurm_plugin.core.units import GIB
    >>> estimate = MemoryEstimate(estimate_bytes=10 * GIB, upper_bytes=12 * GIB, confidence=0.99, source="ours")
    >>> reserves(12 * GIB, estimate, share=0.99)
    'RAD: needs about 10.0 GiB; reserves 12.0 GiB of one GPU (99 % safe)'
    """
    safe = "" if share is None else f" ({share * 100:g} % safe)"
    more = "" if cap_bytes is None else f", up to {human(cap_bytes)} while nobody needs it"
    busy = "" if compute is None else f", and {compute[0]} of {compute[1]} shards for its compute"
    if max_slowdown:
        busy += f"; by measurement 9 of 10 run at most {max_slowdown:g} times slower than alone"
    part = f"reserves {human(booked_bytes)} of {'one GPU' if gpus == 1 else f'each of {gpus} GPUs'}"
    each = f" for each of {processes} processes" if processes > 1 else ""
    if estimate is not None and estimate.source == "stated":
        return f"RAD: {part}{more}{busy}, as stated{each}"
    return f"RAD: {_need(estimate)}{each if estimate is not None else ''}; {part}{safe}{more}{busy}"


def instance(profile: str, estimate: MemoryEstimate) -> str:
    """Say which MIG instance a job gets.

    Args:
        profile: Its type, e.g. "1g.10gb".
        estimate: The need of one process.
    """
    return f"RAD: {_need(estimate)}; gets one MIG instance {profile}"


def alone(why: str, gpus: int = 1) -> str:
    """Say that a job has a GPU for itself, or several.

    Args:
        why: The reason, in a few words.
        gpus: So many.
    """
    return f"RAD: reserves {'one GPU' if gpus == 1 else f'{gpus} GPUs'} for this job alone ({why})"


def without_that(alone: bool) -> str:
    """Say what becomes of a job whose user was not understood.

    Args:
        alone: Whether it gets a GPU for itself for that.
    """
    gets = ", with a GPU of its own" if alone else ""
    return f"RAD: the job goes on without that{gets}; to change it: scancel, mend, and sbatch again"


def may_need(need_bytes: int, capacity_bytes: int) -> str:
    """Return the reason of a job that may fill a GPU.

    Args:
        need_bytes: What it may need.
        capacity_bytes: What a GPU has.
    """
    return f"it may need {human(need_bytes)} of {human(capacity_bytes)}"


def keeps_gpu(obstacle: str) -> str:
    """Say that a job keeps the GPU that it asked for, because shards cannot stand for it.

    Args:
        obstacle: Why not.
    """
    return f"RAD: {obstacle}; the job keeps its GPU to itself"


def keeps_gpus(obstacle: str) -> str:
    """Say that a job of several GPUs does not share them.

    Args:
        obstacle: Why not.
    """
    return f"RAD: {obstacle}; the job keeps its GPUs to itself"


def too_large(estimate: MemoryEstimate, capacity_bytes: int) -> str:
    """Refuse a job that needs more than one GPU has, and say what its user may do, also if we are wrong.

    Args:
        estimate: The need of one process.
        capacity_bytes: What a GPU has.
    """
    return (
        f"RAD: the job needs about {human(estimate.estimate_bytes)} of GPU memory and one GPU has "
        f"{human(capacity_bytes)}; make the batch smaller, split the model over "
        f"--gpus={-(-estimate.upper_bytes // capacity_bytes)}, or try it on a GPU of its own by policy=exclusive"
    )


def too_many_shards(shards: int, most: int) -> str:
    """Refuse a job that asks for more shards than one GPU has.

    Args:
        shards: What it asks for.
        most: Shards of one GPU.
    """
    return f"RAD: {shards} shards are more than one GPU has; ask for at most {most}"


def too_few_shards(booked_bytes: int, need_bytes: int, shards: int) -> str:
    """Warn a job whose own shards are fewer than RAD would book for it.

    Args:
        booked_bytes: What its shards stand for.
        need_bytes: What would be booked.
        shards: How many would hold it.
    """
    return (
        f"RAD: the job asks for {human(booked_bytes)} of GPU memory but may need "
        f"{human(need_bytes)}; --gres=shard:{shards} would hold it"
    )


def other_count(said: int, asked: int) -> str:
    """Say that `#RAD gpus=` and the request differ.

    Args:
        said: `gpus=`.
        asked: GPUs that the job asks Slurm for.
    """
    return f"RAD: #RAD says gpus={said} but the job asks for {asked}; it gets {asked}"


def each_too_large(estimate: MemoryEstimate, capacity_bytes: int) -> str:
    """Warn a job for several GPUs, each of which is too small for one process.

    Args:
        estimate: The need of one process.
        capacity_bytes: What a GPU has.
    """
    return (
        f"RAD: each process needs about {human(estimate.estimate_bytes)} and one GPU has "
        f"{human(capacity_bytes)}; the job will run out of memory unless the model is split"
    )


def no_instance(need_bytes: int, largest_bytes: int) -> str:
    """Say that no MIG instance is large enough.

    Args:
        need_bytes: What the job may need.
        largest_bytes: Memory of the largest instance.
    """
    return (
        f"RAD: the job may need {human(need_bytes)} of GPU memory and the largest MIG instance has "
        f"{human(largest_bytes)}; it keeps what it asked for"
    )


def _need(estimate: MemoryEstimate | None) -> str:
    if estimate is None:
        return "its need is not known"
    if estimate.source == "history":
        return f"needed {human(estimate.estimate_bytes)} before"
    if estimate.source == "stated":
        return f"needs {human(estimate.estimate_bytes)} as stated"
    return f"needs about {human(estimate.estimate_bytes)}"
