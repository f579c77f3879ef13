"""Interface to a cluster: its GPUs, and sbatch's answer to a job. `slurm_plugin.dry_run` implements it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from gpumemnet.gpus import Gpu


class Job(NamedTuple):
    """A hypothetical submission.

    Attributes:
        typed: The options after `sbatch`, without the script.
        script: The job script's text; None if there are only options.
        path: The script as named to sbatch; None for one on standard input.
    """

    typed: tuple[str, ...] = ()
    script: str | None = None
    path: str | None = None


class Submitted(NamedTuple):
    """sbatch's answer to a job.

    Attributes:
        messages: RAD's lines, exactly as sbatch shows them.
        refusal: The line that refuses the job; None if it is accepted.
        faults: Whether a directive could not be understood, so that the job is treated as unknown.
        partition: Its partition; "" if Slurm's default is not known here.
        gres: The requested GRES, e.g. "shard:12"; "" for no GPU.
        decision: A word or two for programs: "shared", "exclusive", "multi-gpu", "not our partition", ...
        booked_bytes: Booked GPU memory per GPU; None for whole GPUs, or without a booking.
        capacity_bytes: Usable memory of one GPU of the partition; None if it is not shared.
        shard_bytes: Size of one shard there; None likewise.
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
    capacity_bytes: int | None
    shard_bytes: int | None
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


class Place(NamedTuple):
    """A partition that jobs can run in.

    Attributes:
        partition: Its name.
        gpu: Its type of GPU, as named in rad.toml.
        usable_bytes: Usable memory of one of its GPUs.
    """

    partition: str
    gpu: str
    usable_bytes: int


class Cluster(Protocol):
    """A cluster with RAD, as its rad.toml describes it."""

    @property
    def origin(self) -> str:
        """Return the path of its rad.toml."""
        ...

    @property
    def estimator(self) -> str:
        """Return its estimator."""
        ...

    @property
    def gpu_model(self) -> Gpu:
        """Return its type of GPU, with the base measured there."""
        ...

    @property
    def places(self) -> tuple[Place, ...]:
        """Return its shared partitions."""
        ...

    def submit(self, job: Job) -> Submitted:
        """Return sbatch's answer, without a query to Slurm.

        Raises:
            GpuMemNetError: sbatch itself would reject the options.
        """
        ...

    def ask(self, job: Job) -> Scheduled:
        """Return Slurm's answer and the expected start; nothing is submitted.

        Raises:
            GpuMemNetError: Slurm cannot be queried here.
        """
        ...
