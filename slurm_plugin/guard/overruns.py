"""Who holds more memory of a GPU than he may, and who of several makes room for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from slurm_plugin.core.placement.candidate import memory_use
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.units import MIB
from slurm_plugin.guard.finding import Finding
from slurm_plugin.guard.sample import Sample, Share

TOLERANCE_BYTES = 512 * MIB
"""What a job may hold beyond its booking: one more CUDA context (532 MiB on an H200) is no theft."""


def overruns(reading: GpuReading, shares: Sequence[Share], sample: Sample) -> Iterator[Finding]:
    """Tell of jobs with more than they may have.

    Nobody passes a cap that MPS holds but on purpose. Up to its cap, and without one (no MPS here), a job may honestly
    need more than anybody thought. It is stopped only where neighbours could not get what they booked, and then the
    one furthest above its own estimate; beyond its cap, also where somebody whom Slurm let in waits for what he booked.
    Who keeps to his booking never is. Nor is anybody for what those hold, or booked, who are leaving already or are to
    go for having passed such a cap.

    Args:
        reading: The GPU.
        shares: What jobs hold on it.
        sample: All that was seen.
    """
    own = [share for share in shares if share.held.kind == "shared" and reading.uuid in share.held.gpus]
    beyond = [share for share in own if share.total_bytes > share.held.limit_bytes + TOLERANCE_BYTES]
    forced = [share for share in beyond if share.key in sample.mine.capped]
    thieves = [share for share in forced if share.settings.on_overrun != "warn"]
    goes = [share for share in own if share in thieves or share.run in sample.leaving]
    spare_bytes = _spare_bytes(reading, sample, thieves, goes)
    honest = [share for share in _above(own) if share not in forced and share not in goes]
    if spare_bytes >= 0:  # what is lent, up to a cap, newcomers wait for
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
        elif share is worst or again:  # our estimate was wrong: such a job is never ended for good
            yield share.finding("surprise", share.held.booked_bytes, "warn" if warns else "requeue")


def _spare_bytes(reading: GpuReading, sample: Sample, thieves: Sequence[Share], goes: Sequence[Share]) -> int:
    """Return what is left of a GPU once those who go have gone and all others have what they booked."""
    gone = {*sample.leaving, *(share.run for share in thieves)}
    stays = [held for held in sample.ledger.on(reading.uuid) if (held.job_id, held.restart) not in gone]
    free_bytes = reading.free_bytes + sum(share.total_bytes for share in goes)
    return free_bytes - memory_use(reading, stays, sample.owners).untouched_bytes


def _above(shares: Sequence[Share]) -> list[Share]:
    """Return those that hold more than they booked.

    What nobody can help is forgiven each user once on a GPU, not once for each of many small jobs.
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
    """Order by who is furthest above his estimate; whom his partition would only warn makes room for nobody."""
    held = share.held
    expected_bytes = held.booked_bytes if held.estimate_bytes is None else held.estimate_bytes
    return share.settings.on_overrun != "warn", share.total_bytes - min(expected_bytes, held.booked_bytes)
