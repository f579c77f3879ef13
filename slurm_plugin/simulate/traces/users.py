"""Users of a trace's jobs: the trace's own, or as many as requested, among which a seed deals the jobs out."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from slurm_plugin.core.placement.server_keys import server_key
from slurm_plugin.core.records.submission import ServerScope
from slurm_plugin.simulate.traces.job import JobTrace, TraceJob

USERS_PER_ACCOUNT = 4
"""Users that a deal gives one Slurm account: a research group. An assumption, not measured."""
FIRST_USER_ID = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """Which user each job of a trace has.

    Attributes:
        users: How many there are.
        seed: What dealt the jobs out; None: the trace names the users.
        of: The user of each job, from 1, by the job's number in the trace.
    """

    users: int
    seed: int | None
    of: tuple[int, ...]


def dealt(trace: JobTrace, users: int | None, seed: int, *, unnamed: int = 1) -> Dealt:
    """Return the users of a trace's jobs; each has as many as the others, or one more.

    The whole trace is dealt out, so a job has the same user in a replay of its first jobs alone.

    Args:
        trace: The trace.
        users: How many; None: those that the trace names, else `unnamed`.
        seed: Of the deal.
        unnamed: Number of users of a trace that names none.
    """
    named = {name: k for k, name in enumerate(dict.fromkeys(job.user for job in trace.jobs), start=1)}
    if users is None and list(named) != [""]:
        return Dealt(users=len(named), seed=None, of=tuple(named[job.user] for job in trace.jobs))
    count = users or unnamed
    of = [k % count + 1 for k in range(len(trace.jobs))]
    random.Random(seed).shuffle(of)
    return Dealt(users=count, seed=seed if count > 1 else None, of=tuple(of))


def with_users(trace: JobTrace, users: int | None, seed: int) -> JobTrace:
    """Return a trace whose jobs have their users, and accounts where the jobs were dealt out.

    Args:
        trace: The trace.
        users: How many; None leaves the trace as it is.
        seed: Of the deal.
    """
    if users is None:
        return trace
    of = dealt(trace, users, seed).of
    jobs = (
        replace(job, user=f"user{k}", account=f"account{account_of(k)}")
        for job, k in zip(trace.jobs, of, strict=True)
    )
    return replace(trace, jobs=tuple(jobs))


def account_of(user: int) -> int:
    """Return the Slurm account that a deal gives a user, both counted from 1."""
    return (user - 1) // USERS_PER_ACCOUNT + 1


def user_ids(trace: JobTrace) -> tuple[int, ...]:
    """Return a user id for each job of a trace."""
    return tuple(FIRST_USER_ID + k - 1 for k in dealt(trace, None, 0).of)


def server_of(scope: ServerScope, job: TraceJob, user_id: int) -> str:
    """Return the key of the MPS server of a job of one GPU (core/placement/server_keys.py).

    Args:
        scope: The partition's `mps_server`.
        job: The job.
        user_id: Its user.
    """
    return server_key(scope, user_id=user_id, account=job.account, job_id=job.number)
