"""End a job's processes on this node as root, without Slurm: this works while slurmctld is away.

The job's batch script ends with them, so Slurm sees the job fail. Its Epilog reports why and requeues it if allowed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.process.identity import PROC, Process
from slurm_plugin.guard.finding import Finding
from slurm_plugin.slurm.node.processes import processes_of

ROUNDS = 20
PAUSE_S = 0.1
"""Time to follow a job that starts processes as fast as they end; the next sample continues."""


class Stopper:
    """Ends jobs: the GPU processes at once, the others in a separate thread."""

    def __init__(self, clock: Clock, *, proc: Path = PROC) -> None:
        self._clock = clock
        self._proc = proc

    def stop(self, finding: Finding) -> None:
        """End the job of a finding."""
        for process in finding.processes:
            process.kill()
        if finding.job_id is not None and finding.user_id:  # never root's
            threading.Thread(
                target=end_job,
                args=(finding.job_id, finding.user_id, self._clock),
                kwargs={"processes": self._processes},
                name=f"stop-{finding.job_id}",
                daemon=True,
            ).start()

    def _processes(self, job_id: int, user_id: int) -> tuple[Process, ...]:
        return processes_of(job_id, user_id, proc=self._proc)


def end_job(
    job_id: int, user_id: int, clock: Clock, *, processes: Callable[[int, int], tuple[Process, ...]]
) -> bool:
    """End all processes of a job that run as its user, and return whether none is left.

    Args:
        job_id: The job.
        user_id: Its user.
        clock: Time.
        processes: Finds them.
    """
    gone = False
    for _ in range(ROUNDS):
        left = processes(job_id, user_id)
        if gone and not left:
            return True
        gone = not left  # during exec a process shows no environment: look twice
        for process in left:
            process.kill()
        clock.sleep(PAUSE_S)
    return False
