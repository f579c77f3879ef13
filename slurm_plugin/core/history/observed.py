"""What jobs of this site really needed, in memory, and what of it a next run books. Pure.

A run is one of the same user training the same model in the same way; other users' runs do not count. Any run raises
what the next one books. It lowers that only if it is representative: watched for a minute (`LEAST_RUN_S`), and busy
with the GPU where that is measured. One such run is enough if its peak is as near below the estimate as the estimate's
own bound is above it. A lower peak counts only as that floor, and after several such runs (`SEVERAL`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from slurm_plugin.core.history.runs import Run, bound_of
from slurm_plugin.core.records.submission import MemoryEstimate

LEAST_RUN_S = 60.0
"""A shorter run may have ended before its first whole step."""
LEAST_SMACT = 0.01
"""Of the SMs kept busy, on average: who holds memory and computes nothing has not trained."""
SEVERAL = 3
"""Representative runs that it takes to book less than the estimate's own quantiles make likely."""
MAX_KEYS = 100_000
"""Of more kinds of jobs the ones that ran longest ago are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The runs of one user with one model and setup, for one process.

    Attributes:
        peak_bytes: The highest peak of all of them.
        smact: Expected share of SMs kept busy (0 to 1), or None.
        runs: How many were representative.
    """

    peak_bytes: int
    smact: float | None = None
    runs: int = 0


def is_representative(run: Run) -> bool:
    """Return whether a run shows what a training of its length and model needs."""
    if run.start_s is None or run.time_s is None:
        return False
    smact = run.mean_smact if run.smact is None else run.smact
    return run.time_s - run.start_s >= LEAST_RUN_S and (smact is None or smact >= LEAST_SMACT)


def floor_of(estimate: MemoryEstimate) -> int:
    """Return what is booked at least: as far below the best guess as the bound is above it, as a factor."""
    return estimate.estimate_bytes * estimate.estimate_bytes // max(estimate.upper_bytes, 1)


def with_runs(estimate: MemoryEstimate, seen: Seen) -> MemoryEstimate:
    """Return what a job needs by its estimate and by earlier runs of it.

    Args:
        estimate: Of one process, with its profile's key.
        seen: What its runs came to.
    """
    bound_bytes, floor_bytes = bound_of(seen.peak_bytes), floor_of(estimate)
    if bound_bytes < estimate.upper_bytes and seen.runs < (1 if seen.peak_bytes >= floor_bytes else SEVERAL):
        return replace(
            estimate,
            estimate_bytes=max(estimate.estimate_bytes, seen.peak_bytes),
            quantiles=tuple((share, max(n_bytes, bound_bytes)) for share, n_bytes in estimate.quantiles)
            if seen.peak_bytes > estimate.estimate_bytes
            else estimate.quantiles,
        )
    return MemoryEstimate(
        estimate_bytes=max(seen.peak_bytes, floor_bytes),
        upper_bytes=bound_of(max(seen.peak_bytes, floor_bytes)),
        confidence=None,  # no runs were held out to say how often a peak with its margin holds
        source="history",
        profile_key=estimate.profile_key,
    )


class ObservedPeaks:
    """What is known of runs, by user, model and setup, and processes on a GPU: what is seen they hold together."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[int, str, int], Seen] = OrderedDict()

    def add(self, run: Run) -> None:
        """Take in a run that ended well; one that does not tell what its model needs is left out.

        Of its activity a busier run counts at once, a calmer one by half: who pretends to be calm once gains little.

        Args:
            run: It; one that was cut short by lack of memory must have no profile key.
        """
        processes = run.processes or 1
        if run.profile_key is None or run.peak_bytes is None or run.peak_bytes <= 0 or processes < 1:
            return
        key = (run.user_id, run.profile_key, processes)
        before = self._seen.pop(key, Seen(peak_bytes=0))
        smact = before.smact
        if run.smact is not None and 0.0 <= run.smact <= 1.0:
            smact = run.smact if smact is None or run.smact > smact else (smact + run.smact) / 2
        self._seen[key] = Seen(
            peak_bytes=max(run.peak_bytes, before.peak_bytes),
            smact=smact,
            runs=before.runs + is_representative(run),
        )
        if len(self._seen) > MAX_KEYS:
            self._seen.popitem(last=False)

    def of(self, user_id: int, profile_key: str, *, processes: int = 1) -> Seen | None:
        """Return what is known of one process of a job that this user ran before; None if it is new.

        Args:
            user_id: The user.
            profile_key: `ModelProfile.key`.
            processes: That share a GPU; what they held together is divided evenly.
        """
        known = self._seen.get((user_id, profile_key, processes))
        if known is None:
            return None
        smact = None if known.smact is None else round(known.smact / processes, 3)
        return replace(known, peak_bytes=-(-known.peak_bytes // processes), smact=smact)
