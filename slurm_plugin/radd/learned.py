"""The site's learned corrections, ready for submissions; and the thread that updates them once an hour."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.history.site_quantiles_file import (
    Learned,
    applied,
    group_of,
    learned_path,
    read_learned,
)
from slurm_plugin.core.logs.once import Complaint
from slurm_plugin.core.process.background import in_background
from slurm_plugin.core.process.run import run
from slurm_plugin.core.records.submission import MemoryEstimate

log = logging.getLogger("radd")

EVERY_S = 3600.0
FIRST_S = 5.0
"""Delay of the first run after radd's start: what another release learned does not count."""
MOST_S = 600.0
"""Time limit: a site's whole history takes seconds, so a longer run has failed."""


class SiteQuantiles:
    """The table of STATE/learned.json. Safe to use from several threads."""

    def __init__(self, state: Path) -> None:
        """Start empty; `refresh` reads the file.

        Args:
            state: paths.state.
        """
        self._path = learned_path(state)
        self._stamp: tuple[int, int] | None = None
        self._learned = Learned()

    def refresh(self) -> None:
        """Read the file if it changed; a missing or damaged file counts as empty."""
        try:
            found = self._path.stat()
        except OSError:
            self._stamp, self._learned = None, Learned()
            return
        stamp = (found.st_mtime_ns, found.st_ino)
        if stamp == self._stamp:
            return
        learned = read_learned(self._path.parent)
        if not learned.made_for:
            log.warning("%s: damaged, or of another release; the shipped estimates are used", self._path)
        self._stamp, self._learned = stamp, learned

    def readable(self, made_for: str) -> bool:
        """Return whether there are corrections to apply.

        Args:
            made_for: `Estimator.made_for`.
        """
        return self._learned.made_for == made_for

    def applied(self, estimate: MemoryEstimate, gpu: str, *, made_for: str) -> MemoryEstimate:
        """Return an estimate as corrected by this site's runs; unchanged where they show nothing about it.

        Args:
            estimate: As shipped.
            gpu: Type of GPU of the job's partition.
            made_for: `Estimator.made_for`.
        """
        learned = self._learned
        limits = learned.groups.get(group_of(estimate.kind, gpu)) if estimate.kind else None
        return estimate if limits is None or learned.made_for != made_for else applied(estimate, limits)


class Learner:
    """A dedicated thread that waits for the program that learns."""

    def __init__(self, config_path: Path, config: Callable[[], Config]) -> None:
        """Prepare.

        Args:
            config_path: rad.toml, for the program.
            config: Returns the configuration in force.
        """
        self._config_path, self._config = config_path, config
        self._stopping = threading.Event()
        self._wait_s = FIRST_S
        self._complaint = Complaint(
            lambda wrong: log.warning("nothing new learned from this site's runs: %s", wrong)
        )

    def start(self) -> None:
        """Learn from time to time, in the background."""
        in_background("radd-site", self._work, log=log)

    def stop(self) -> None:
        """Stop learning."""
        self._stopping.set()

    def learn(self) -> None:
        """Learn once, if enabled; an error is logged once and changes nothing."""
        if not self._config().learns:
            return
        command = (sys.executable, "-I", "-m", "slurm_plugin.radd.learn", str(self._config_path))
        try:
            run(command, timeout_s=MOST_S)
        except CommandError as exc:
            self._complaint.set(str(exc))
        else:
            self._complaint.set("")

    def _work(self) -> bool:
        if self._stopping.wait(self._wait_s):
            return False
        self._wait_s = EVERY_S
        self.learn()
        return True
