"""Assign a replay's jobs to users: the trace's own, or as many as requested, to which a seed deals them out."""

from __future__ import annotations

import argparse
import pwd
import subprocess

from slurm_plugin.simulate.traces.read import read_trace
from slurm_plugin.simulate.traces.users import Dealt, dealt

USERS = 6
"""Of a trace that names none: on a cluster a job's neighbours are other users' jobs."""
ACCOUNT = "rad-replay-{}"


def dealt_of(options: argparse.Namespace) -> Dealt:
    """Return the users of a run.

    Raises:
        ConfigError: Its trace cannot be read.
    """
    return dealt(read_trace(options.trace), options.users, options.seed, unnamed=USERS)


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
