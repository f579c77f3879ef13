"""Jobs that have ended on this node and have had no Prolog since: RUN/ended/ID, owned by root.

    {"partition": "gpu", "reported": true}

slurmd runs no Prolog for a job that it still remembers: 22.05 starts a requeued job that way, until it has forgotten
the run before. Each Epilog of a job that RAD places leaves such a file and each Prolog removes it first, whatever the
job or its partition is by then. So a task that finds one belongs to a run without a Prolog: it has no allocation.
A job that never had an Epilog here has no file, nor has any job that started before RAD was installed.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from gpumemnet.records import frozen
from slurm_plugin.core.files.preallocated import SpareFiles

KEPT_S = 1800.0
"""slurmd remembers a job until its credential expires, `cred_expire` (default 120 s) after its end."""

_PLACED = b"# "
"""How a file of the Prolog begins (core/ledger/job_file.py)."""


@frozen
class EndedRun:
    """A run that is over.

    Attributes:
        partition: Its partition.
        reported: Whether its Epilog has reported how it ended: one that was killed before that does so when it runs
            again.
    """

    partition: str
    reported: bool = True


class EndedRuns:
    """The files of a node, below paths.run."""

    def __init__(self, run: Path) -> None:
        self._run, self._folder = run, run / "ended"

    def note(self, job_id: int, ended: EndedRun) -> None:
        """Record that a run is over; without the file the job's next run is treated as one with a Prolog.

        If nothing can be written, the file that the run's Prolog left is renamed, which needs no space.

        Args:
            job_id: Slurm's job id.
            ended: The run.
        """
        text = json.dumps({"partition": ended.partition, "reported": ended.reported})
        try:
            self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            SpareFiles(self._run).write(self._folder / str(job_id), text.encode())
        except OSError:
            with suppress(OSError):
                (self._run / "placed" / str(job_id)).rename(self._folder / str(job_id))

    def of_job(self, job_id: int) -> EndedRun | None:
        """Return the run that ended here, and after which no Prolog of the job has run; None if there is none."""
        try:
            text = (self._folder / str(job_id)).read_bytes()
            if text.startswith(_PLACED):
                head = json.loads(text.partition(b"\n")[0].removeprefix(_PLACED))
                return EndedRun(partition=str(head["allocation"]["partition"]))
            row = json.loads(text)
            return EndedRun(partition=str(row["partition"]), reported=bool(row["reported"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def forget(self, job_id: int) -> None:
        """Record that a Prolog of the job runs; nothing happens if there is no file."""
        SpareFiles(self._run).discard(self._folder / str(job_id))

    def forget_old(self, *, now_s: float) -> None:
        """Remove the files of runs that slurmd has forgotten as well.

        Args:
            now_s: Seconds since the epoch; setting the clock shortens or lengthens the life of a file.
        """
        with suppress(OSError):
            for path in self._folder.iterdir():
                if now_s - path.stat().st_mtime > KEPT_S:
                    SpareFiles(self._run).discard(path)
