"""The project's interface to Slurm, as one Protocol.

Two implementations: commands.py (scontrol, squeue, sinfo) and pyslurm.py (where pyslurm is installed and matches the
running version). Never called while radd serves a submission: slurmctld holds its locks until radd answers.
"""

from __future__ import annotations

from typing import Protocol

from gpumemnet.records import frozen


@frozen
class JobView:
    """One job as Slurm sees it now.

    Attributes:
        job_id: Slurm's job id.
        user_id: The job's user.
        state: "PENDING", "RUNNING", "COMPLETING", "FAILED", ...
        reason: Why it pends, or "".
        partition: Partition name.
        gres: Its request, e.g. "gres/shard:12"; on 22.05 this may differ from what a rerun gets.
        node: Name of the first allocated node, or "".
        comment: The job's comment.
        admin_comment: The job's AdminComment.
        priority: Current priority; 0 for a held job.
        nice: Nice value set by its user or an operator, subtracted from the priority; 0 in lists of jobs.
        requeue: Whether the job may be requeued.
        restarts: How often it was requeued.
        batch: Whether it has a batch script.
        start_time_s: When it starts or started, seconds since the epoch; None if unknown.
    """

    job_id: int
    user_id: int
    state: str
    reason: str = ""
    partition: str = ""
    gres: str = ""
    node: str = ""
    comment: str = ""
    admin_comment: str = ""
    priority: int = 0
    nice: int = 0
    requeue: bool = True
    restarts: int = 0
    batch: bool = True
    start_time_s: float | None = None


@frozen
class Standing:
    """Queue position of one job.

    Attributes:
        job_id: Slurm's job id.
        user_id: The job's user.
        state: "PENDING", "RUNNING", ...
        reason: Why it pends, or "".
        partition: Partition name, or several with commas between.
        priority: Current priority; 0 for a held job.
        nice: Nice value set by its user or an operator, subtracted from the priority.
        restarts: How often it was requeued.
        submitted_s: When it was submitted or requeued, seconds since the epoch.
        accrues_s: From when its age counts, which may be in the future; None if it has none.
        admin_comment: The job's AdminComment; "" in lists of jobs.
    """

    job_id: int
    user_id: int
    state: str
    reason: str = ""
    partition: str = ""
    priority: int
    nice: int = 0
    restarts: int = 0
    submitted_s: int
    accrues_s: int | None = None
    admin_comment: str = ""


LONGEST_DELAY_S = 200.0
"""No delay after a requeue is this long: RAD's are 160 s at most, and Slurm's is cred_expire, 120 s by default."""


def put_off(job: JobView, *, now_s: float) -> bool:
    """Return whether the start of a waiting job was postponed by a user or admin, not by a requeue.

    Args:
        job: The job.
        now_s: Seconds since the epoch.
    """
    return job.reason == "BeginTime" and (job.start_time_s or 0.0) > now_s + LONGEST_DELAY_S


@frozen
class NodeView:
    """One node as Slurm sees it now.

    Attributes:
        name: Node name.
        address: Where Slurm finds it (NodeAddr): a name or a number; "" if unknown.
        gres: Configured GRES, e.g. "gpu:4,shard:160".
        state: "IDLE", "MIXED", "DRAINED", ...
        partitions: Partitions it belongs to.
        reason: Why it is down or drained, or "".
    """

    name: str
    address: str = ""
    gres: str = ""
    state: str = ""
    partitions: tuple[str, ...] = ()
    reason: str = ""


@frozen
class JobChange:
    """Changes of a job; None leaves a property unchanged.

    Attributes:
        gres: New per-node request, e.g. "shard:40", without a version's prefix.
        per_task: New request of each task, as Slurm 23.11 and later write it: "cpu=2,gres/shard:40".
        comment: New comment.
        admin_comment: New AdminComment.
        nice: New nice value; a negative one raises the priority.
        start_now: Clear a start time in the future, such as the delay after a requeue.
        start_in_s: Seconds before which it must not start.
    """

    gres: str | None = None
    per_task: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    nice: int | None = None
    start_now: bool = False
    start_in_s: int | None = None


class SlurmControl(Protocol):
    """Queries and commands to Slurm. Every method raises SlurmError if Slurm refuses or does not answer in time."""

    def version(self) -> tuple[int, int, int]:
        """Return Slurm's version, e.g. (22, 5, 8)."""
        ...

    def job(self, job_id: int) -> JobView | None:
        """Return a job, or None if Slurm no longer knows it."""
        ...

    def standing(self, job_id: int) -> Standing | None:
        """Return the queue position of a job, or None if Slurm no longer knows it."""
        ...

    def standings(self) -> tuple[Standing, ...]:
        """Return the queue positions of all jobs that wait."""
        ...

    def nodes(self) -> tuple[NodeView, ...]:
        """Return all nodes."""
        ...

    def config(self) -> dict[str, str]:
        """Return the running configuration: names and values as `scontrol show config` prints them."""
        ...

    def requeue_delay_s(self) -> int:
        """Return the minimum wait of a requeued job before it may start again (versions.py)."""
        ...

    def requeue(self, job_id: int) -> None:
        """Requeue a running, completing or finished batch job; already pending is success."""
        ...

    def update(self, job_id: int, change: JobChange) -> None:
        """Change a job in one request.

        Args:
            job_id: The job.
            change: The changes; fields that are None stay.
        """
        ...
