"""End a job's processes on this node as root, without Slurm: this works while slurmctld is away.

The job's batch script ends with them, so Slurm sees the job fail. Its Epilog reports why and requeues it if allowed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from slurm_plugin.core.clock import Clock, SystemClock
from slurm_plugin.core.process.identity import Process
from slurm_plugin.guard.violation import Violation
from slurm_plugin.slurm.node.processes import processes_of

ROUNDS = 20
PAUSE_S = 0.1
"""Time to follow a job that starts processes as fast as they end; the next sample continues."""


def stop(violation: Violation) -> None:
    """End the job of a violation: its GPU processes at once, the others in a separate thread."""
    for process in violation.processes:
        process.kill()
    if violation.job_id is not None and violation.user_id:  # never root's
        ending = threading.Thread(
            target=end_job,
            args=(violation.job_id, violation.user_id, SystemClock()),
            kwargs={"processes": processes_of},
            name=f"stop-{violation.job_id}",
            daemon=True,
        )
        with contextlib.suppress(RuntimeError):  # the node has no pid left; a later sample stops it again
            ending.start()


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
