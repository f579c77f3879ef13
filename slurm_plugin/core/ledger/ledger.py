"""The allocations of one node: pure state that refuses changes that would break a rule.

Rule 2: a whole GPU has one job. Rule 3: what is booked on a GPU, plus what unmanaged processes use there, never
exceeds its usable memory, and neither does what its jobs may need together (pooled_reserve.py). Jobs that are not
managed are recorded as Slurm allocated them: that may break either rule, and then no other job is admitted. codec.py
writes the ledger as text, store.py keeps it in a file, reconcile.py finds the allocations that are over.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpumemnet.records import frozen, replace
from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger.pooled_reserve import pooled_bytes, share_of
from slurm_plugin.core.records.node import Allocation


@frozen
class Ledger:
    """All allocations on the GPUs of one node.

    Attributes:
        allocations: At most one per job id.
        last_gpu: The GPU that was allocated last, where round robin continues; None at the start.
        reconciled_s: When it was last reconciled, seconds since boot; None if never.
    """

    allocations: tuple[Allocation, ...] = ()
    last_gpu: str | None = None
    reconciled_s: float | None = None

    def of_job(self, job_id: int) -> Allocation | None:
        """Return a job's allocation, or None."""
        return next((allocation for allocation in self.allocations if allocation.job_id == job_id), None)

    def on(self, uuid: str) -> tuple[Allocation, ...]:
        """Return the allocations on one GPU."""
        return tuple(allocation for allocation in self.allocations if uuid in allocation.gpus)

    def reserve(self, wanted: Allocation, usable_bytes: Mapping[str, int]) -> Ledger:
        """Return the ledger with an allocation, which replaces any older one of the same job.

        Args:
            wanted: The allocation.
            usable_bytes: What jobs may book on each GPU in total: usable memory less what unmanaged processes use.

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
            if uuid not in usable_bytes:
                raise LedgerError(f"job {wanted.job_id}: this node has no GPU {uuid}")
            neighbours = others.on(uuid)
            if neighbours and "whole" in {wanted.kind, *(allocation.kind for allocation in neighbours)}:
                raise LedgerError(f"job {wanted.job_id}: GPU {uuid} would not be exclusive")
            booked = sum(allocation.booked_bytes for allocation in neighbours) + wanted.booked_bytes
            if wanted.kind == "shared" and booked > usable_bytes[uuid]:
                raise LedgerError(
                    f"job {wanted.job_id}: GPU {uuid} would be overbooked, {booked} of {usable_bytes[uuid]}"
                )
            pooled = pooled_bytes(share_of(allocation) for allocation in (*neighbours, wanted))
            if (
                wanted.kind == "shared"
                and wanted.limit_bytes > wanted.booked_bytes
                and pooled > usable_bytes[uuid]
            ):
                raise LedgerError(
                    f"job {wanted.job_id}: GPU {uuid} would be overcommitted, {pooled} of {usable_bytes[uuid]}"
                )
        return replace(others, allocations=(*others.allocations, wanted), last_gpu=wanted.gpus[-1])

    def note(self, given: Allocation) -> Ledger:
        """Return the ledger with what a job has already, even if it breaks a rule, in place of any older run of it."""
        others = self.release(given.job_id, restart=given.restart)
        if others.of_job(given.job_id) is not None:
            return others
        return replace(others, allocations=(*others.allocations, given))

    def release(self, job_id: int, *, restart: int) -> Ledger:
        """Return the ledger without a job's allocation, unless a later run of the job has it by now.

        Args:
            job_id: Slurm's job id.
            restart: Restart count of the run that ends.
        """
        kept = tuple(
            allocation
            for allocation in self.allocations
            if allocation.job_id != job_id or allocation.restart > restart
        )
        return self if len(kept) == len(self.allocations) else replace(self, allocations=kept)
