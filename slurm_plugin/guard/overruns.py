"""Find jobs that use more GPU memory than they may, and choose which one to stop to free memory for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from slurm_plugin.core.placement.candidate import memory_use
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.units import MIB
from slurm_plugin.guard.finding import Finding
from slurm_plugin.guard.sample import Sample, Share

TOLERANCE_BYTES = 512 * MIB
"""Usage allowed above the booking: one more CUDA context (532 MiB on an H200) is no overrun."""


def overruns(reading: GpuReading, shares: Sequence[Share], sample: Sample) -> Iterator[Finding]:
    """Find jobs that use more memory than they may.

    A job above a limit that MPS enforces bypassed MPS on purpose. Below its limit, or without an enforced limit (no
    MPS here), a job may need more than estimated without any fault. It is then stopped only if other jobs could not
    get what they booked, and only the one furthest above its own estimate. Above its limit, it is also stopped if a
    job that Slurm has started waits for what it booked. A job within its booking is never stopped. Memory used or
    booked by jobs that are already leaving, or that will be stopped for bypassing a limit, counts as free.

    Args:
        reading: The GPU.
        shares: Usage of the jobs on it.
        sample: The whole sample.
    """
    own = [share for share in shares if share.held.kind == "shared" and reading.uuid in share.held.gpus]
    beyond = [share for share in own if share.total_bytes > share.held.limit_bytes + TOLERANCE_BYTES]
    forced = [share for share in beyond if share.key in sample.mine.capped]
    thieves = [share for share in forced if share.settings.on_overrun != "warn"]
    goes = [share for share in own if share in thieves or share.run in sample.leaving]
    spare_bytes = _spare_bytes(reading, sample, thieves, goes)
    honest = [share for share in _above(own) if share not in forced and share not in goes]
    if spare_bytes >= 0:  # incoming jobs wait for memory used above a booking
        owed_bytes = sample.owed_bytes.get(reading.uuid, 0)
        honest = [share for share in honest if share in beyond and spare_bytes < owed_bytes]
    worst = max(honest, key=_goes_first, default=None)
    for share in own:
        warns = share.settings.on_overrun == "warn"
        again = share in goes and share.excess_bytes > 0
        if share in beyond:
            stops = share in forced or share is worst or again
            yield share.finding(
                "memory", share.held.limit_bytes, share.settings.on_overrun if stops else "warn"
            )
        elif share is worst or again:  # RAD's estimate was wrong: always requeue such a job
            yield share.finding("surprise", share.held.booked_bytes, "warn" if warns else "requeue")


def _spare_bytes(reading: GpuReading, sample: Sample, thieves: Sequence[Share], goes: Sequence[Share]) -> int:
    """Return the memory left on a GPU once the stopped jobs are gone and all others have what they booked."""
    gone = {*sample.leaving, *(share.run for share in thieves)}
    stays = [held for held in sample.ledger.on(reading.uuid) if (held.job_id, held.restart) not in gone]
    free_bytes = reading.free_bytes + sum(share.total_bytes for share in goes)
    return free_bytes - memory_use(reading, stays, sample.owners).untouched_bytes


def _above(shares: Sequence[Share]) -> list[Share]:
    """Return the jobs that use more than they booked.

    The tolerance applies once per user and GPU, not once for each of many small jobs.
    """
    excess_bytes: Counter[int] = Counter()
    for share in shares:
        excess_bytes[share.held.user_id] += share.excess_bytes
    return [
        share
        for share in shares
        if share.excess_bytes > 0 and excess_bytes[share.held.user_id] > TOLERANCE_BYTES
    ]


def _goes_first(share: Share) -> tuple[bool, int]:
    """Sort key: furthest above its estimate; a job whose partition only warns is never stopped for the others."""
    held = share.held
    expected_bytes = held.booked_bytes if held.estimate_bytes is None else held.estimate_bytes
    return share.settings.on_overrun != "warn", share.total_bytes - min(expected_bytes, held.booked_bytes)
