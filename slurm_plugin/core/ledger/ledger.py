"""The allocations of one node: pure state that refuses changes that would break a rule.

Rule 2: a whole GPU has one job. Rule 3: what is booked on a GPU, plus what unmanaged processes use there, never
exceeds its usable memory, and neither does what its jobs may need together (pooled_reserve.py). Jobs that are not
managed are recorded as Slurm allocated them: that may break either rule, and then no other job is admitted. codec.py
writes the ledger as text, store.py keeps it in a file, reconcile.py finds the allocations that are over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger.pooled_reserve import pooled_bytes, share_of
from slurm_plugin.core.records.node import Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All allocations on the GPUs of one node.

    Attributes:
        reservations: At most one per job id.
        last_gpu: The GPU that was allocated last, where round robin continues; None at the start.
        swept_s: When it was last reconciled, seconds since boot; None if never.
    """

    reservations: tuple[Reservation, ...] = ()
    last_gpu: str | None = None
    swept_s: float | None = None

    def of_job(self, job_id: int) -> Reservation | None:
        """Return a job's allocation, or None."""
        return next((held for held in self.reservations if held.job_id == job_id), None)

    def on(self, uuid: str) -> tuple[Reservation, ...]:
        """Return the allocations on one GPU."""
        return tuple(held for held in self.reservations if uuid in held.gpus)

    def reserve(self, wanted: Reservation, room_bytes: Mapping[str, int]) -> Ledger:
        """Return the ledger with an allocation, which replaces any older one of the same job.

        Args:
            wanted: The allocation.
            room_bytes: What jobs may book on each GPU in total: usable memory less what unmanaged processes use.

        Raises:
            LedgerError: It would put a second job on a whole GPU, book more than a GPU has, or allow the job memory
                above its booking that the overshoots of all jobs may need.
        """
        others = self.release(wanted.job_id, restart=wanted.restart)
        if others.of_job(wanted.job_id) is not None:
            raise LedgerError(f"job {wanted.job_id}: a later run of it has an allocation")
        if not wanted.gpus or len(set(wanted.gpus)) != len(wanted.gpus):
            raise LedgerError(f"job {wanted.job_id}: an allocation needs distinct GPUs")
        for uuid in wanted.gpus:
            if uuid not in room_bytes:
                raise LedgerError(f"job {wanted.job_id}: this node has no GPU {uuid}")
            neighbours = others.on(uuid)
            if neighbours and "whole" in {wanted.kind, *(held.kind for held in neighbours)}:
                raise LedgerError(f"job {wanted.job_id}: GPU {uuid} would not be exclusive")
            booked = sum(held.booked_bytes for held in neighbours) + wanted.booked_bytes
            if wanted.kind == "shared" and booked > room_bytes[uuid]:
                raise LedgerError(
                    f"job {wanted.job_id}: GPU {uuid} would be overbooked, {booked} of {room_bytes[uuid]}"
                )
            pooled = pooled_bytes(share_of(held) for held in (*neighbours, wanted))
            if (
                wanted.kind == "shared"
                and wanted.limit_bytes > wanted.booked_bytes
                and pooled > room_bytes[uuid]
            ):
                raise LedgerError(
                    f"job {wanted.job_id}: GPU {uuid} would be overcommitted, {pooled} of {room_bytes[uuid]}"
                )
        return replace(others, reservations=(*others.reservations, wanted), last_gpu=wanted.gpus[-1])

    def note(self, given: Reservation) -> Ledger:
        """Return the ledger with what a job has already, even if it breaks a rule, in place of any older run of it."""
        others = self.release(given.job_id, restart=given.restart)
        if others.of_job(given.job_id) is not None:
            return others
        return replace(others, reservations=(*others.reservations, given))

    def release(self, job_id: int, *, restart: int) -> Ledger:
        """Return the ledger without a job's allocation, unless a later run of the job has it by now.

        Args:
            job_id: Slurm's job id.
            restart: Restart count of the run that ends.
        """
        kept = tuple(held for held in self.reservations if held.job_id != job_id or held.restart > restart)
        return self if len(kept) == len(self.reservations) else replace(self, reservations=kept)
