"""What a cluster adds to an estimate: its cards, and what sbatch says to a job. `slurm_plugin.dry_run` is one."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from gpumemnet.gpus import Gpu


class Job(NamedTuple):
    """A submission that is not made.

    Attributes:
        typed: What would be typed behind `sbatch`, without the script.
        script: The job script's text; None where nothing but options is told.
        path: The script as it would be named to sbatch; None for one that comes on standard input.
    """

    typed: tuple[str, ...] = ()
    script: str | None = None
    path: str | None = None


class Verdict(NamedTuple):
    """What sbatch would do with a job.

    Attributes:
        says: RAD's lines, word for word as sbatch shows them.
        refusal: The line with which the job is refused; None if it is taken.
        faults: Whether something that the user said could not be understood, so that the job is treated as unknown.
        partition: Where it would run; "" if Slurm's default is not known here.
        gres: What the job asks Slurm for, e.g. "shard:12"; "" if for no GPU.
        decision: A word or two for programs: "shared", "exclusive", "multi-gpu", "not our partition", ...
        booked_bytes: GPU memory that it books on a GPU; None if whole GPUs, or nothing is booked.
        capacity_bytes: Memory of one GPU of the partition that jobs can have; None if it is not shared.
        shard_bytes: What one shard stands for there; None likewise.
        upper_bytes: The bound, where runs of this site changed it; None if it is the estimator's own.
        learned: A sentence on what runs of this site changed of the estimate, or why that is not known here; "" if
            nothing.
    """

    says: tuple[str, ...]
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


class Asked(NamedTuple):
    """What Slurm itself answers.

    Attributes:
        lines: Its lines, word for word.
        starts: When the job would start, local time as Slurm writes it; None if it would be refused.
    """

    lines: tuple[str, ...]
    starts: str | None


class Place(NamedTuple):
    """Where jobs can run.

    Attributes:
        partition: Its name.
        gpu: Its type of GPU as rad.toml names it.
        usable_bytes: Memory of one of its GPUs that jobs can have.
    """

    partition: str
    gpu: str
    usable_bytes: int


class Cluster(Protocol):
    """A cluster with RAD, as its rad.toml describes it."""

    @property
    def origin(self) -> str:
        """Return the file that describes it."""
        ...

    @property
    def estimator(self) -> str:
        """Return the estimator that books there."""
        ...

    @property
    def card(self) -> Gpu:
        """Return its type of GPU, with the base that was measured there."""
        ...

    @property
    def places(self) -> tuple[Place, ...]:
        """Return its shared partitions."""
        ...

    def submit(self, job: Job) -> Verdict:
        """Return what sbatch would say, without asking Slurm.

        Raises:
            GpuMemNetError: sbatch itself would not understand the options.
        """
        ...

    def ask(self, job: Job) -> Asked:
        """Return what Slurm says, and when the job would start; nothing is submitted.

        Raises:
            GpuMemNetError: Slurm cannot be asked here.
        """
        ...
