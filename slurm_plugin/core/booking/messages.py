"""Messages of sbatch, srun and salloc about a decision: what happened, what it means for the job, what to do.

`python3 -m lab messages` prints them with all other messages; the site has them as a page.
"""

from __future__ import annotations

from slurm_plugin.core.records.submission import MemoryEstimate
from slurm_plugin.core.units import human, percentile

NO_GPU = "RAD: the job requests no GPU, so #RAD has no effect; add --gpus=1"
HETEROGENEOUS = "RAD: components of a heterogeneous job cannot share GPUs; each gets what it requests"
MIG = "RAD: a MIG instance cannot be shared; the job gets the instance that it requests"
SEVERAL_NODES = "jobs on several nodes cannot share GPUs"
SEVERAL_GPUS = "jobs with several GPUs do not share them in this partition"
NEED_UNKNOWN = "GPU memory need unknown"
EXCLUSIVE = "policy=exclusive"
NO_FILE = "RAD: model= is not read from a job script on standard input; submit a file: sbatch job.sh"
SHARDS_OF_WHOLE_NODES = (
    "RAD: the job was refused: Slurm never starts a job that requests shards on whole nodes (--exclusive, or a "
    "partition with OverSubscribe=EXCLUSIVE); remove --exclusive, or submit it with sbatch --gpus=1"
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
) -> str:
    """Report the booking of a shared job.

    Args:
        booked_bytes: The booking.
        estimate: The need of one process; None if it is unknown.
        processes: Number of processes that share the GPU.
        gpus: Number of GPUs of the job, each with one process.
        share: Share of jobs for which the booking is large enough; None if unknown.
        cap_bytes: The limit, where it is above the booking; None otherwise.
        compute: Shards requested for the job's compute, and shards of a GPU; None if memory decides.

    >>> from slurm_plugin.core.units import GIB
    >>> estimate = MemoryEstimate(estimate_bytes=10 * GIB, upper_bytes=12 * GIB, confidence=0.99, source="rad")
    >>> reserves(12 * GIB, estimate, share=0.99)
    'RAD: estimated 10.0 GiB; booked 12.0 GiB (99th percentile)'
    """
    each = f" for each of {processes} processes" if processes > 1 and estimate is not None else ""
    size = human(booked_bytes) if gpus == 1 else f"{human(booked_bytes)} on each of {gpus} GPUs"
    parts = [f"booked {size}" + ("" if share is None else f" ({percentile(share)})")]
    if cap_bytes is not None:
        parts.append(f"limit {human(cap_bytes)}")
    if compute is not None:
        parts.append(f"{compute[0]} of {compute[1]} shards for compute")
    return f"RAD: {_need(estimate)}{each}; {', '.join(parts)}"


def instance(profile: str, estimate: MemoryEstimate) -> str:
    """Report the MIG instance that a job gets.

    Args:
        profile: Its type, e.g. "1g.10gb".
        estimate: The need of one process.
    """
    return f"RAD: {_need(estimate)}; booked one MIG instance {profile}"


def alone(why: str, gpus: int = 1) -> str:
    """Report that a job gets whole GPUs.

    Args:
        why: The reason, in a few words.
        gpus: Number of GPUs.
    """
    return f"RAD: booked {_whole(gpus)} ({why})"


def without_that(alone: bool) -> str:
    """Report that a directive was ignored; the line before says which and why.

    Args:
        alone: Whether the job gets a whole GPU for that reason.
    """
    gets = "; the job gets a whole GPU" if alone else ""
    return f"RAD: the directive above was ignored{gets}; to change that, cancel the job, fix the directive and resubmit"


def may_need(need_bytes: int, capacity_bytes: int, processes: int = 1) -> str:
    """Return the reason why a job that may fill a GPU gets a whole one.

    Args:
        need_bytes: The most that it may need.
        capacity_bytes: Usable memory of a GPU.
        processes: Number of processes that share the GPU.
    """
    subject = "it" if processes == 1 else f"its {processes} processes together"
    return f"{subject} may need {human(need_bytes)} of {human(capacity_bytes)}"


def mixed_partitions(names: str) -> str:
    """Report that #RAD is not read: the job may start in partitions that are treated differently.

    Args:
        names: Value of `--partition`.
    """
    return f"RAD: the partitions {names} treat #RAD differently, so it has no effect; request one of them"


def not_managed(names: str) -> str:
    """Report that #RAD is not read: RAD does not manage the partition.

    Args:
        names: Value of `--partition`, or the default partition.
    """
    subject = f"partitions {names} are" if "," in names else f"partition {names} is"
    return f"RAD: {subject} not managed; #RAD lines have no effect"


def below_a_process(stated_bytes: int, base_bytes: int) -> str:
    """Warn that a stated need is too small for any training.

    Args:
        stated_bytes: Value of `memory=`.
        base_bytes: Memory of a process without a model.
    """
    return (
        f"RAD: memory={human(stated_bytes).replace(' ', '').removesuffix('iB')} is less than a process uses without "
        f"a model ({human(base_bytes)}), so the job may run out of memory; state its peak, as nvidia-smi shows it"
    )


def keeps_gpu(obstacle: str) -> str:
    """Report that a job gets the whole GPU that it requested, because shards cannot replace it."""
    return f"RAD: {obstacle}; the job gets a whole GPU"


def keeps_gpus(obstacle: str) -> str:
    """Report that a job with several GPUs gets them as whole GPUs."""
    return f"RAD: {obstacle}; the job gets whole GPUs"


def too_large(estimate: MemoryEstimate, capacity_bytes: int) -> str:
    """Refuse a job that needs more memory than one GPU has; name a way for a job that was overestimated, too.

    Args:
        estimate: The need of one process.
        capacity_bytes: Usable memory of a GPU.
    """
    refused = f"RAD: the job was refused: {_need(estimate)}, and one GPU has {human(capacity_bytes)}"
    gpus = f"split the model over --gpus={-(-estimate.upper_bytes // capacity_bytes)}"
    if estimate.source == "stated":
        return f"{refused}; correct memory=, or {gpus}"
    return f"{refused}; reduce the batch size, {gpus}, or add policy=exclusive to try it on a whole GPU"


def too_many_shards(shards: int, most: int) -> str:
    """Refuse a job that requests more shards than one GPU has.

    Args:
        shards: The request.
        most: Shards of one GPU.
    """
    return f"RAD: the job was refused: it requests {shards} shards, and one GPU has {most}; request at most {most}"


def too_few_shards(booked_bytes: int, need_bytes: int, shards: int) -> str:
    """Warn about a job whose user requested fewer shards than RAD would book.

    Args:
        booked_bytes: The memory of its shards.
        need_bytes: The memory that RAD would book.
        shards: The number of shards for that.
    """
    return (
        f"RAD: the job requests {human(booked_bytes)} of GPU memory and may need {human(need_bytes)}, "
        f"so it may run out of memory; request --gres=shard:{shards}"
    )


def other_count(stated: int, requested: int) -> str:
    """Report that `#RAD gpus=` and the request differ.

    Args:
        stated: Value of `gpus=`.
        requested: GPUs that the job requests from Slurm.
    """
    differs = f"RAD: #RAD gpus={stated} differs from {requested} requested GPUs"
    return f"{differs}; the job gets {_whole(requested)}; make them equal"


def each_too_large(estimate: MemoryEstimate, capacity_bytes: int) -> str:
    """Warn about a job with several GPUs, each of which is too small for one process.

    Args:
        estimate: The need of one process.
        capacity_bytes: Usable memory of a GPU.
    """
    return (
        f"RAD: estimated {human(estimate.estimate_bytes)} for each process, and one GPU has {human(capacity_bytes)}; "
        "the job will run out of memory unless it splits the model over its GPUs"
    )


def no_instance(need_bytes: int, largest_bytes: int) -> str:
    """Report that no MIG instance is large enough.

    Args:
        need_bytes: The most that the job may need.
        largest_bytes: Memory of the largest instance.
    """
    return (
        f"RAD: the job may need {human(need_bytes)} of GPU memory, and the largest MIG instance has "
        f"{human(largest_bytes)}; its request is unchanged and it may run out of memory; reduce the batch size"
    )


def _whole(gpus: int) -> str:
    return "a whole GPU" if gpus == 1 else f"{gpus} whole GPUs"


def _need(estimate: MemoryEstimate | None) -> str:
    if estimate is None:
        return NEED_UNKNOWN
    need = human(estimate.estimate_bytes)
    if estimate.source == "history":
        return f"used {need} in earlier runs"
    return f"requested {need}" if estimate.source == "stated" else f"estimated {need}"
