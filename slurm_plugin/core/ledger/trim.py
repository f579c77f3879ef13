"""What a job that has settled gives back: training holds after its first steps what it will ever hold.

Of 5,850 recorded runs of three or four steps 0.03 % exceeded what they held after the second by more than 5 % and 256
MiB (`bench/estimator/settled.py`). `SETTLED_SAMPLES` stands for those steps, and was not measured. Slurm's shards of a
running job cannot be changed (docs/versions.md); what is given back is room in the node's ledger, which counts where a
GPU has more shards than memory.
"""

from __future__ import annotations

from slurm_plugin.core.records.node import Reservation
from slurm_plugin.core.units import MIB

SETTLED_SAMPLES = 120
"""So many samples, one a second, without a higher peak."""

MARGIN = 1.05
MARGIN_BYTES = 256 * MIB

LEAST_OF_ESTIMATE = 0.5
"""A job that holds less of what is expected has not begun: it loads data, or compiles."""


def settled_bytes(
    held: Reservation, *, age_s: float, peak_bytes: int | None, steady_samples: int
) -> int | None:
    """Return what a job is seen to need; None if that is not known yet, or is no less than it booked.

    Args:
        held: What it holds.
        age_s: Seconds since it was placed: what was seen before that, an earlier run of it did.
        peak_bytes: Its highest memory so far; None if nobody saw it.
        steady_samples: Samples since that last rose.
    """
    if held.kind != "shared" or not held.managed or held.estimate_bytes is None or peak_bytes is None:
        return None
    if min(steady_samples, age_s) < SETTLED_SAMPLES or peak_bytes < LEAST_OF_ESTIMATE * held.estimate_bytes:
        return None
    need_bytes = int(peak_bytes * MARGIN) + MARGIN_BYTES
    return need_bytes if need_bytes < held.booked_bytes else None
