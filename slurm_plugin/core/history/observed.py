"""Memory that jobs of this site really needed, and what the next run books because of it. No I/O.

Only runs of the same user with the same model and setup count. Any run can raise what the next one books. It lowers
that only if it is representative: observed for a minute (`LEAST_RUN_S`), and busy with the GPU where that is measured.
One such run is enough if its peak is as near below the estimate as the estimate's bound is above it. A lower peak
counts only as that floor, and after several such runs (`SEVERAL`). A peak at the run's own limit says nothing:
TensorFlow may allocate all that it is given in advance, and would book more after each run.
"""

from __future__ import annotations

from collections import OrderedDict

from gpumemnet.records import frozen, replace
from slurm_plugin.core.history.runs import Run, bound_of
from slurm_plugin.core.records.submission import MemoryEstimate

LEAST_RUN_S = 60.0
"""A shorter run may have ended before its first whole step."""
LEAST_SMACT = 0.01
"""Least mean share of SMs kept busy: a job that uses memory but computes nothing has not trained."""
AT_LIMIT = 0.95
"""Share of its limit from which a run may have allocated all that it could. Assumed: TensorFlow leaves some 300 MiB."""
SEVERAL = 3
"""Representative runs required to book less than the estimate's own quantiles make likely."""
MAX_KEYS = 100_000
"""Beyond this number of kinds of jobs, those that ran longest ago are forgotten."""


@frozen
class ObservedRuns:
    """The runs of one user with one model and setup, for one process.

    Attributes:
        peak_bytes: The highest peak of all of them.
        smact: Expected share of SMs kept busy (0 to 1), or None.
        runs: Number of representative runs.
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


def is_at_limit(run: Run) -> bool:
    """Return whether a run's peak shows its limit in place of its need; above it, no limit was enforced."""
    cap_bytes = run.cap_bytes or 0
    return AT_LIMIT * cap_bytes <= (run.peak_bytes or 0) <= cap_bytes


def floor_of(estimate: MemoryEstimate) -> int:
    """Return the smallest booking: as far below the estimate as the bound is above it, as a factor."""
    return estimate.estimate_bytes * estimate.estimate_bytes // max(estimate.upper_bytes, 1)


def with_runs(estimate: MemoryEstimate, seen: ObservedRuns) -> MemoryEstimate:
    """Return the need of a job from its estimate and its earlier runs.

    Args:
        estimate: Estimate of one process, with its profile's key.
        seen: Summary of its runs.
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
        confidence=None,  # no held-out runs to measure how often a peak with its margin is enough
        source="history",
        profile_key=estimate.profile_key,
    )


class ObservedPeaks:
    """Summaries of runs, by user, model and setup, and processes on a GPU; peaks are those of all these together."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[int, str, int], ObservedRuns] = OrderedDict()

    def add(self, run: Run) -> None:
        """Add a run that ended well; of one that does not show what its model needs, only the activity counts.

        A busier run raises the activity at once, a less busy one lowers it by half: faking low activity once gains
        little.

        Args:
            run: The run; one that was cut short by lack of memory must have no profile key.
        """
        processes = run.processes or 1
        if run.profile_key is None or run.peak_bytes is None or run.peak_bytes <= 0 or processes < 1:
            return
        key = (run.user_id, run.profile_key, processes)
        before = self._seen.pop(key, ObservedRuns(peak_bytes=0))
        smact = before.smact
        if run.smact is not None and 0.0 <= run.smact <= 1.0:
            smact = run.smact if smact is None or run.smact > smact else (smact + run.smact) / 2
        shows_need = not is_at_limit(run)
        self._seen[key] = ObservedRuns(
            peak_bytes=max(run.peak_bytes * shows_need, before.peak_bytes),
            smact=smact,
            runs=before.runs + (shows_need and is_representative(run)),
        )
        if len(self._seen) > MAX_KEYS:
            self._seen.popitem(last=False)

    def of(self, user_id: int, profile_key: str, *, processes: int = 1) -> ObservedRuns | None:
        """Return the summary for one process of a job that this user ran before; None if it is new.

        Args:
            user_id: The user.
            profile_key: `ModelProfile.key`.
            processes: Number that share a GPU; their joint usage is divided evenly.
        """
        known = self._seen.get((user_id, profile_key, processes))
        if known is None:
            return None
        smact = None if known.smact is None else round(known.smact / processes, 3)
        return replace(known, peak_bytes=-(-known.peak_bytes // processes), smact=smact)
