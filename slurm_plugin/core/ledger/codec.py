"""Encode a ledger as JSON text that older and newer releases can read.

A release may add fields and never changes the meaning of one. A reader skips unknown fields and uses defaults for
missing ones; an unknown kind of allocation counts as a whole GPU.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, fields
from types import UnionType
from typing import Any

from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.records.node import Allocation

_FIELDS = {field.name: field for field in fields(Allocation)}
_NUMBERS = ("job_id", "user_id", "booked_bytes", "restart")
_TYPES: dict[str, type | UnionType] = {
    "managed": bool,
    "uncapped": bool,
    "server": str,
    "cap_bytes": int | None,
    "estimate_bytes": int | None,
    "profile_key": str | None,
}


def encode(ledger: Ledger, *, boot_id: str) -> bytes:
    """Return a ledger as text.

    Args:
        ledger: The ledger.
        boot_id: The present boot of the node.
    """
    tree = {
        "boot_id": boot_id,
        "last_gpu": ledger.last_gpu,
        "reconciled_s": ledger.reconciled_s,
        "allocations": [asdict(allocation) for allocation in ledger.allocations],
    }
    return json.dumps(tree).encode()


_LARGEST = 2.0**63
"""No time and no share is larger; an integer beyond a float's range would be an error later."""


def decode(text: bytes, *, boot_id: str) -> Ledger | None:
    """Return the ledger in a text; None if it is of another boot, so that none of its jobs still runs.

    Args:
        text: The content of a slot.
        boot_id: The present boot of the node.

    Raises:
        LedgerError: The text is no ledger.
    """
    try:
        tree = json.loads(text)
        if tree["boot_id"] != boot_id:
            return None
        allocations = tuple(allocation_from(row) for row in tree["allocations"])
        last_gpu, reconciled_s = tree.get("last_gpu"), tree.get("reconciled_s")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise LedgerError(f"not a ledger: {exc!r:.200}") from exc
    if len({allocation.job_id for allocation in allocations}) != len(allocations):
        raise LedgerError("not a ledger: a job id appears twice")
    return Ledger(
        allocations=allocations,
        last_gpu=last_gpu if isinstance(last_gpu, str) else None,
        reconciled_s=float(reconciled_s) if _is_number(reconciled_s) else None,
    )


def allocation_from(row: Any) -> Allocation:
    """Return the allocation that JSON values describe.

    Raises:
        LedgerError: They describe none.
    """
    try:
        known = {name: row[name] for name in _FIELDS if name in row}
        known |= {"gpus": tuple(row["gpus"]), "gpu_indices": tuple(row["gpu_indices"])}
        missing = [name for name, field in _FIELDS.items() if field.default is MISSING and name not in known]
        if missing:
            raise LedgerError(f"not an allocation: no {', '.join(missing)}")
        allocation = Allocation(**{**known, "kind": "shared" if row["kind"] == "shared" else "whole"})
    except (KeyError, TypeError, ValueError) as exc:
        raise LedgerError(f"not an allocation: {exc!r:.200}") from exc
    whole_numbers = [getattr(allocation, name) for name in _NUMBERS] + list(allocation.gpu_indices)
    fits = (
        allocation.gpus
        and all(isinstance(uuid, str) for uuid in allocation.gpus)
        and all(isinstance(number, int) and number >= 0 for number in whole_numbers)
        and _is_number(allocation.created_s)
        and (allocation.smact is None or _is_number(allocation.smact))
        and all(isinstance(getattr(allocation, name), kind) for name, kind in _TYPES.items())
    )
    if not fits:
        raise LedgerError(f"not an allocation: {json.dumps(row)[:200]}")
    return allocation


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
