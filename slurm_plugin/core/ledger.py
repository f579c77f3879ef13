"""The reservations of one node: pure state whose changes refuse what would break a rule.

Rule 2: a whole GPU has one holder. Rule 3: what is booked on a GPU, with what strangers hold there, never exceeds
what the GPU can give. ledger_store.py keeps it in a file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.records import Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Who holds what on the GPUs of one node.

    Attributes:
        reservations: At most one per job id.
        last_gpu: The GPU that was given out last, where round robin goes on; None at the start.
    """

    reservations: tuple[Reservation, ...] = ()
    last_gpu: str | None = None

    def of_job(self, job_id: int) -> Reservation | None:
        """Return what a job holds, or None."""
        return next((held for held in self.reservations if held.job_id == job_id), None)

    def on(self, uuid: str) -> tuple[Reservation, ...]:
        """Return the reservations on one GPU."""
        return tuple(held for held in self.reservations if uuid in held.gpus)

    def reserve(self, wanted: Reservation, room_bytes: Mapping[str, int]) -> Ledger:
        """Return the ledger with a reservation, in place of any older one of the same job.

        Args:
            wanted: The reservation.
            room_bytes: What jobs may book on each GPU in all: usable memory less what strangers hold.

        Raises:
            LedgerError: It would put a second job on a whole GPU or book more than a GPU has.
        """
        others = self.release(wanted.job_id, restart=wanted.restart)
        if others.of_job(wanted.job_id) is not None:
            raise LedgerError(f"job {wanted.job_id}: a later run of it holds a reservation")
        if not wanted.gpus or len(set(wanted.gpus)) != len(wanted.gpus):
            raise LedgerError(f"job {wanted.job_id}: a reservation needs distinct GPUs")
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
        return Ledger(reservations=(*others.reservations, wanted), last_gpu=wanted.gpus[-1])

    def release(self, job_id: int, *, restart: int) -> Ledger:
        """Return the ledger without a job's reservation, unless a later run of the job holds it by now.

        Args:
            job_id: Slurm's job id.
            restart: Restart count of the run that ends.
        """
        kept = tuple(held for held in self.reservations if held.job_id != job_id or held.restart > restart)
        return self if len(kept) == len(self.reservations) else replace(self, reservations=kept)

    def keep(self, job_ids: Collection[int]) -> Ledger:
        """Return the ledger with the reservations of these jobs alone."""
        return replace(self, reservations=tuple(h for h in self.reservations if h.job_id in job_ids))


def to_json(ledger: Ledger) -> dict[str, Any]:
    """Return a ledger as JSON values."""
    return {"last_gpu": ledger.last_gpu, "reservations": [asdict(held) for held in ledger.reservations]}


def from_json(tree: Any) -> Ledger:
    """Return the ledger that JSON values describe.

    Raises:
        LedgerError: They describe none.
    """
    try:
        reservations = tuple(reservation_from_json(row) for row in tree["reservations"])
        last_gpu = tree["last_gpu"]
    except (KeyError, TypeError) as exc:
        raise LedgerError(f"not a ledger: {exc!r}") from exc
    if len({held.job_id for held in reservations}) != len(reservations):
        raise LedgerError("not a ledger: a job id appears twice")
    return Ledger(reservations=reservations, last_gpu=last_gpu if isinstance(last_gpu, str) else None)


def reservation_from_json(row: Any) -> Reservation:
    """Return the reservation that JSON values describe.

    Raises:
        LedgerError: They describe none.
    """
    try:
        held = Reservation(**{**row, "gpus": tuple(row["gpus"]), "seats": tuple(row["seats"])})
    except (KeyError, TypeError, ValueError) as exc:
        raise LedgerError(f"not a reservation: {exc!r}") from exc
    numbers = (held.job_id, held.user_id, held.booked_bytes, held.restart, *held.seats)
    names_fit = held.kind in ("shared", "whole") and all(isinstance(uuid, str) for uuid in held.gpus)
    if not names_fit or not all(isinstance(n, int) for n in numbers) or not held.gpus:
        raise LedgerError(f"not a reservation: {json.dumps(row)[:200]}")
    return held
