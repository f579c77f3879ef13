"""Interface to a cluster: its GPUs, and sbatch's answer to a job. `slurm_plugin.dry_run` implements it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from gpumemnet.gpus import Gpu


class HypotheticalJob(NamedTuple):
    """A hypothetical submission.

    Attributes:
        typed: The options after `sbatch`, without the script.
        script: The job script's text; None if there are only options.
        path: The script as named to sbatch; None for one on standard input.
    """

    typed: tuple[str, ...] = ()
    script: str | None = None
    path: str | None = None


class SbatchAnswer(NamedTuple):
    """sbatch's answer to a job.

    Attributes:
        messages: RAD's lines, exactly as sbatch shows them.
        refusal: The line that refuses the job; None if it is accepted.
        faults: Whether a directive could not be understood, so that the job is treated as unknown.
        partition: Its partition; "" if Slurm's default is not known here.
        gres: The requested GRES, e.g. "shard:12"; "" for no GPU.
        decision: A word or two for programs: "shared", "exclusive", "multi-gpu", "not our partition", ...
        booked_bytes: Booked GPU memory per GPU; None for whole GPUs, or without a booking.
        limit_bytes: The job's limit per GPU; None if that is the booking.
        share: Share of jobs for which the booking is large enough; None if unknown.
        capacity_bytes: Usable memory of one GPU of the partition; None if it is not shared.
        shard_bytes: Size of one shard there; None likewise.
        shards: Number of shards of one GPU there; None likewise.
        upper_bytes: The bound, if runs of this site changed it; None if it is the estimator's.
        learned: A sentence on the effect of this site's runs on the estimate, or why that is unknown here; "" without
            effect.
    """

    messages: tuple[str, ...]
    refusal: str | None
    faults: bool
    partition: str
    gres: str
    decision: str
    booked_bytes: int | None
    limit_bytes: int | None
    share: float | None
    capacity_bytes: int | None
    shard_bytes: int | None
    shards: int | None
    upper_bytes: int | None = None
    learned: str = ""


class Scheduled(NamedTuple):
    """Slurm's own answer.

    Attributes:
        lines: Its lines, unchanged.
        starts: Expected start, local time in Slurm's format; None if the job would be refused.
    """

    lines: tuple[str, ...]
    starts: str | None


class UsablePartition(NamedTuple):
    """A partition that jobs can run in.

    Attributes:
        partition: Its name.
        gpu: Its type of GPU, as named in rad.toml.
        usable_bytes: Usable memory of one of its GPUs.
        shards: Number of shards of one of its GPUs.
        shard_bytes: Size of one shard.
    """

    partition: str
    gpu: str
    usable_bytes: int
    shards: int
    shard_bytes: int


class ConfiguredCluster(Protocol):
    """A cluster with RAD, as its rad.toml describes it."""

    @property
    def estimator(self) -> str:
        """Return its estimator."""
        ...

    @property
    def gpu_model(self) -> Gpu:
        """Return its type of GPU, with the base measured there."""
        ...

    @property
    def places(self) -> tuple[UsablePartition, ...]:
        """Return its shared partitions."""
        ...

    def submit(self, job: HypotheticalJob) -> SbatchAnswer:
        """Return sbatch's answer, without a query to Slurm.

        Raises:
            GpuMemNetError: sbatch itself would reject the options.
        """
        ...

    def ask(self, job: HypotheticalJob) -> Scheduled:
        """Return Slurm's answer and the expected start; nothing is submitted.

        Raises:
            GpuMemNetError: Slurm cannot be queried here.
        """
        ...
