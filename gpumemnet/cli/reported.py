"""Results of `rad-estimate` for one question: estimate, booking and sbatch's answer."""

from __future__ import annotations

from typing import NamedTuple

from gpumemnet.cli.cluster import SbatchAnswer, Scheduled
from gpumemnet.directives.parse import Directives
from gpumemnet.directives.values import DEFAULT_CONFIDENCE, Confidence
from gpumemnet.estimate import Estimate
from gpumemnet.gpus import Gpu
from gpumemnet.units import MIB, human, percentile

SHARD_MIB = 1024
"""Default size of one shard; a site may configure another."""


class Booked(NamedTuple):
    """Booking for an estimate.

    Attributes:
        n_bytes: The part of it that the job needs.
        share: Share of jobs for which it is enough; None if not measured.
        most_bytes: The job's limit, unless its shards are larger.
        shard_bytes: Size of one shard.
        whole: Whether it is a whole GPU.
    """

    n_bytes: int
    share: float | None
    most_bytes: int
    shard_bytes: int = SHARD_MIB * MIB
    whole: bool = False

    @classmethod
    def of(cls, result: Estimate, confidence: Confidence | None) -> Booked:
        """Return the booking.

        Args:
            result: The job's estimate.
            confidence: Share of jobs that it must be enough for (0.5 to 0.999). None: default of a partition that sets
                none.
        """
        confidence = DEFAULT_CONFIDENCE if confidence is None else confidence
        if isinstance(confidence, str) or result.quantiles is None:
            return cls(n_bytes=result.upper_bytes, share=result.confidence, most_bytes=result.upper_bytes)
        n_bytes = result.quantile(confidence)
        return cls(n_bytes=n_bytes, share=confidence, most_bytes=max(n_bytes, result.upper_bytes))

    def in_cluster(self, submitted: SbatchAnswer) -> Booked:
        """Return a cluster's booking: sbatch's answer, in shards of the cluster's size."""
        shard_bytes = submitted.shard_bytes or self.shard_bytes
        if submitted.booked_bytes:
            n_bytes, share = submitted.booked_bytes, submitted.share
            most_bytes = submitted.limit_bytes or n_bytes
            return self._replace(n_bytes=n_bytes, share=share, most_bytes=most_bytes, shard_bytes=shard_bytes)
        if submitted.capacity_bytes is None:
            return self
        n_bytes = submitted.capacity_bytes
        return Booked(n_bytes=n_bytes, share=None, most_bytes=n_bytes, shard_bytes=shard_bytes, whole=True)

    @property
    def shards(self) -> int:
        """Return the number of shards that hold it."""
        return -(-self.n_bytes // self.shard_bytes)

    @property
    def shards_bytes(self) -> int:
        """Return the memory that sbatch books: that of its shards, or of the GPU."""
        return self.n_bytes if self.whole else self.shards * self.shard_bytes

    @property
    def limit_bytes(self) -> int:
        """Return the most that the job may allocate; at least its booking."""
        return max(self.most_bytes, self.shards_bytes)

    @property
    def shard_mib(self) -> int:
        """Return the size of one shard in MiB."""
        return self.shard_bytes // MIB

    @property
    def part(self) -> str:
        """Return the part of a GPU as text."""
        return f"{self.shards} shard{'s' * (self.shards != 1)} of {self.shard_mib} MiB"

    def words(self) -> str:
        """Return the booking as text."""
        share = "" if self.share is None else f" ({percentile(self.share)})"
        limit = f", limit {human(self.limit_bytes)}" if self.limit_bytes > self.shards_bytes else ""
        return f"{human(self.shards_bytes)}{share}{limit}: {self.part}"


class Reported(NamedTuple):
    """Results for one question.

    Attributes:
        result: The job's estimate; None if unknown.
        booked: Its booking; None likewise.
        gpu_model: Type of GPU.
        directives: The user's directives.
        warnings: One sentence for each guess.
        submitted: sbatch's answer; None without a cluster.
        scheduled: Slurm's answer; None if it was not queried.
        made: A sentence on the origin of a saved profile; "" without one.
    """

    result: Estimate | None
    booked: Booked | None
    gpu_model: Gpu
    directives: Directives
    warnings: tuple[str, ...] = ()
    submitted: SbatchAnswer | None = None
    scheduled: Scheduled | None = None
    made: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return warnings that sbatch's message does not include."""
        reported = () if self.submitted is None else self.submitted.messages
        all_of_them = (*self.warnings, *(self.result.warnings if self.result is not None else ()))
        return tuple(text for text in all_of_them if f"RAD: {text}" not in reported)
