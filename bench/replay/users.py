"""Whose jobs a replay's are: the trace's own users, or as many as asked for, to whom a seed deals the jobs out."""

from __future__ import annotations

import argparse
import pwd
import random
import subprocess
from dataclasses import dataclass

from slurm_plugin.simulate.trace import read_trace
from slurm_plugin.simulate.trace_job import Trace

USERS = 6
"""Of a trace that names none: on a cluster a job's neighbours are strangers."""
ACCOUNT = "rad-replay-{}"


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


def dealt(trace: Trace, users: int | None, seed: int) -> Dealt:
    """Return the users of a trace's jobs; each has as many as the others, or one more.

    The whole trace is dealt out, so a job has the same user in a replay of its first jobs alone.

    Args:
        trace: The trace.
        users: How many; None: those that the trace names, else USERS.
        seed: Of the deal.
    """
    named = list(dict.fromkeys(job.user for job in trace.jobs))
    if users is None and named != [""]:
        return Dealt(users=len(named), seed=None, of=tuple(named.index(job.user) + 1 for job in trace.jobs))
    count = users or USERS
    of = [k % count + 1 for k in range(len(trace.jobs))]
    random.Random(seed).shuffle(of)
    return Dealt(users=count, seed=seed if count > 1 else None, of=tuple(of))


def dealt_of(options: argparse.Namespace) -> Dealt:
    """Return the users of a run.

    Raises:
        ConfigError: Its trace cannot be read.
    """
    return dealt(read_trace(options.trace), options.users, options.seed)


def accounts(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the accounts of a run's users, in their order."""
    count = dealt_of(options).users
    return (options.user,) if count == 1 else tuple(ACCOUNT.format(k) for k in range(1, count + 1))


def make_accounts(names: tuple[str, ...]) -> None:
    """Make the accounts that this machine has not; they stay, as the next run needs them again.

    Raises:
        CalledProcessError: One cannot be made.
    """
    for name in names:
        try:
            pwd.getpwnam(name)
        except KeyError:
            argv = ["useradd", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/sh", name]
            subprocess.run(argv, check=True)
