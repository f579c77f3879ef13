"""MPS servers as the placement sees them: which jobs share one, and a preference for GPUs where it already runs.

Jobs of one server run at once; servers of one GPU take turns. So among GPUs that suit a job about equally, one where
its server runs is the better one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from slurm_plugin.core.placement.candidate import CandidateGpu
from slurm_plugin.core.records.node import ServerScope

_KEY = re.compile(r"\d{1,10}|a[0-9a-f]{12}|all|j\d{1,10}")
_ACCOUNT_HEX = 12
"""An account's name may be too long for a unix socket's path, and hold a slash."""


def server_key(scope: ServerScope, *, user_id: int, account: str, job_id: int, own: bool = False) -> str:
    """Return the key of a job's MPS server on any GPU, which is also the name of its folder.

    Args:
        scope: The partition's `mps_server`.
        user_id: The job's user.
        account: The job's Slurm account, as Slurm enforces it; "" if it does not: then its user counts.
        job_id: Slurm's job id.
        own: Whether it shares its server with no other job.

    >>> server_key("user", user_id=1000, account="lab", job_id=7), server_key("gpu", user_id=1, account="", job_id=7)
    ('1000', 'all')
    >>> server_key("account", user_id=1000, account="lab", job_id=7)
    'aa51146d38077'
    >>> server_key("account", user_id=1000, account="", job_id=7)
    '1000'
    >>> server_key("gpu", user_id=1000, account="lab", job_id=7, own=True)
    'j7'
    """
    if own:
        return f"j{job_id}"
    if scope == "gpu":
        return "all"
    if scope == "account" and account:
        return f"a{hashlib.sha256(account.encode(errors='surrogateescape')).hexdigest()[:_ACCOUNT_HEX]}"
    return str(user_id)


def is_server_key(name: str) -> bool:
    """Return whether a name is a key as `server_key` makes them."""
    return _KEY.fullmatch(name) is not None


def user_of(key: str) -> int | None:
    """Return the only user of a server; None for a server that is not one user's by its key."""
    return int(key) if key.isdecimal() else None


def runs_on(room: CandidateGpu, key: str) -> bool:
    """Return whether a GPU has jobs on an MPS server.

    Args:
        room: The GPU.
        key: Key of the server; "" is none, and no job is on it.
    """
    return bool(key) and any(
        held.server == key and held.part_of_one_gpu and not held.uncapped for held in room.jobs
    )


def near_server(
    chosen: CandidateGpu, candidates: Sequence[CandidateGpu], key: str, affinity: float
) -> CandidateGpu:
    """Return the GPU for a job: the policy's choice, or one about as good on which the job's MPS server runs.

    Args:
        chosen: The policy's choice.
        candidates: GPUs on which the job fits, in the order in which equal ones are preferred.
        key: Key of the job's MPS server; "" without MPS.
        affinity: The partition's `server_affinity`.
    """
    if runs_on(chosen, key):
        return chosen
    near = [room for room in candidates if runs_on(room, key) and _about_as_good(room, chosen, affinity)]
    return min(near, key=lambda room: (-room.free_bytes, room.activity, room.index), default=chosen)


def _about_as_good(room: CandidateGpu, chosen: CandidateGpu, affinity: float) -> bool:
    less_bytes = abs(chosen.free_bytes - room.free_bytes)
    busier = abs(room.activity - chosen.activity)
    return less_bytes <= affinity * chosen.usable_bytes and busier <= affinity
