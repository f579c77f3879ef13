"""Start and stop the cluster's daemons, each by its pid and never by its name."""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lab.place import Place
from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.errors import RadError
from slurm_plugin.core.process.identity import started_ticks
from slurm_plugin.core.process.run import spawn_daemon


class LabError(RadError):
    """The private cluster cannot be set up, started or stopped; the text says what to do."""


TIME_FACTOR = float(os.environ.get("RAD_TIME_FACTOR", "1"))
"""How many times as long as on an idle machine a wait for a cluster may take."""


def wait_until(what: str, condition: Callable[[], bool], *, timeout_s: float, clock: Clock) -> None:
    """Return as soon as a condition holds.

    Raises:
        LabError: It did not hold in time.
    """
    deadline = Deadline(clock, timeout_s)
    late = False
    while not condition():
        if late:  # it was looked at once more, as this process may have been kept from running
            raise LabError(f"{what}: not within {timeout_s:g} s")
        clock.sleep(0.05)
        late = deadline.passed()


class Daemons:
    """The daemons of one cluster; a pid file holds pid and start time, so a reused pid is not mistaken for one."""

    def __init__(self, place: Place, clock: Clock) -> None:
        self._place, self._clock = place, clock

    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str], user: str = "root") -> None:
        """Start a daemon that stays in the foreground of a separate session."""
        entry = pwd.getpwnam(user)
        log = self._place.log / f"{name}.out"
        pid = spawn_daemon(argv, env=env, log_path=log, uid=entry.pw_uid, gid=entry.pw_gid)
        self._file(name).write_text(f"{pid} {started_ticks(pid) or 0}\n")

    def running(self) -> dict[str, int]:
        """Return the pids of running daemons, by name."""
        pids = {path.stem: self.pid(path.stem) for path in sorted(self._place.run.glob("*.pid"))}
        return {name: pid for name, pid in pids.items() if pid is not None}

    def pid(self, name: str) -> int | None:
        """Return a daemon's pid; None if it does not run."""
        try:
            pid, ticks = map(int, self._file(name).read_text().split())
        except (OSError, ValueError):
            return None
        return pid if ticks and started_ticks(pid) == ticks else None

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a running daemon."""
        if (pid := self.pid(name)) is not None:
            os.kill(pid, number)

    def stop(self, name: str, *, timeout_s: float = 10.0) -> None:
        """End a daemon: by SIGTERM first, by force after the time limit, which is longer on a busy machine."""
        timeout_s *= TIME_FACTOR
        self.signal(name, signal.SIGTERM)
        try:
            wait_until(name, lambda: self.pid(name) is None, timeout_s=timeout_s, clock=self._clock)
        except LabError:
            self.signal(name, signal.SIGKILL)
            wait_until(f"{name} ends", lambda: self.pid(name) is None, timeout_s=timeout_s, clock=self._clock)
        self._file(name).unlink(missing_ok=True)

    def kill(self, name: str, *, timeout_s: float = 10.0) -> None:
        """End a daemon as a crash does, and return when it is gone."""
        timeout_s *= TIME_FACTOR
        self.signal(name, signal.SIGKILL)
        wait_until(f"{name} ends", lambda: self.pid(name) is None, timeout_s=timeout_s, clock=self._clock)

    def _file(self, name: str) -> Path:
        return self._place.run / f"{name}.pid"


def kill_leftovers(slurm_conf: Path) -> int:
    """Kill the job processes and step daemons that belong to a cluster, and return their number.

    They are identified by their environment: SLURM_CONF is this cluster's, and they are part of a job or are a
    slurmstepd.
    """
    mark = b"SLURM_CONF=" + os.fsencode(slurm_conf)
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        in_job = any(entry.startswith(b"SLURM_JOB_ID=") for entry in environment)
        if mark in environment and (in_job or b"slurmstepd" in command) and int(folder.name) != os.getpid():
            os.kill(int(folder.name), signal.SIGKILL)
            count += 1
    return count
