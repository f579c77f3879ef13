"""All that `rad-estimate` has to tell of one question: what is booked, of what, and what sbatch says."""

from __future__ import annotations

from typing import NamedTuple

from gpumemnet.cli.cluster import Asked, Verdict
from gpumemnet.directives.parse import Directives
from gpumemnet.directives.values import DEFAULT_CONFIDENCE, Confidence
from gpumemnet.estimate import Estimate
from gpumemnet.gpus import Gpu
from gpumemnet.units import MIB, human, percentile

SHARD_MIB = 1024
"""Default size of one shard; a site may configure another."""


class Booked(NamedTuple):
    """What is booked of an estimate.

    Attributes:
        n_bytes: So much.
        share: Share of jobs for which that is enough; None if no measurement says it.
        most_bytes: What the job may hold at most.
        shard_bytes: What one shard stands for.
    """

    n_bytes: int
    share: float | None
    most_bytes: int
    shard_bytes: int = SHARD_MIB * MIB

    @classmethod
    def of(cls, result: Estimate, confidence: Confidence | None) -> Booked:
        """Return what is booked.

        Args:
            result: What the job needs.
            confidence: Share of jobs that it shall be enough for (0.5 to 0.999). None: as in a partition that says
                nothing.
        """
        confidence = DEFAULT_CONFIDENCE if confidence is None else confidence
        if isinstance(confidence, str) or result.quantiles is None:
            return cls(n_bytes=result.upper_bytes, share=result.confidence, most_bytes=result.upper_bytes)
        n_bytes = result.quantile(confidence)
        return cls(n_bytes=n_bytes, share=confidence, most_bytes=max(n_bytes, result.upper_bytes))

    def in_cluster(self, verdict: Verdict) -> Booked:
        """Return what a cluster books of it: what sbatch says, in shards of its size."""
        n_bytes = verdict.booked_bytes or verdict.capacity_bytes or self.n_bytes
        most_bytes = max(n_bytes, self.most_bytes) if verdict.booked_bytes else n_bytes
        shard_bytes = verdict.shard_bytes or self.shard_bytes
        return self._replace(n_bytes=n_bytes, most_bytes=most_bytes, shard_bytes=shard_bytes)

    @property
    def shards(self) -> int:
        """Return the number of shards that hold it."""
        return -(-self.n_bytes // self.shard_bytes)

    @property
    def shard_mib(self) -> int:
        """Return what one shard stands for, in MiB."""
        return self.shard_bytes // MIB

    @property
    def part(self) -> str:
        """Return the part of a GPU in words."""
        return f"{self.shards} shard{'s' * (self.shards != 1)} of {self.shard_mib} MiB"

    def words(self) -> str:
        """Return it in words."""
        share = "" if self.share is None else f" ({percentile(self.share)})"
        limit = f", limit {human(self.most_bytes)}" if self.most_bytes > self.n_bytes else ""
        return f"{human(self.n_bytes)}{share}{limit}: {self.part}"


class Told(NamedTuple):
    """All that there is to tell.

    Attributes:
        result: What the job needs; None if nothing says it.
        booked: What is booked of it; None likewise.
        card: Type of GPU.
        said: What the user says of the job.
        warnings: What had to be guessed, one sentence each.
        verdict: What sbatch would do; None where no cluster is meant.
        asked: What Slurm itself answers; None if it was not asked.
    """

    result: Estimate | None
    booked: Booked | None
    card: Gpu
    said: Directives
    warnings: tuple[str, ...] = ()
    verdict: Verdict | None = None
    asked: Asked | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what had to be guessed and sbatch does not say already."""
        told = () if self.verdict is None else self.verdict.says
        all_of_them = (*self.warnings, *(self.result.warnings if self.result is not None else ()))
        return tuple(text for text in all_of_them if f"RAD: {text}" not in told)
