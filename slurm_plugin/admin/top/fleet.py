"""State of the fleet at one moment: every node's state, the queue, and the sums over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slurm_plugin.monitor.export.status import GpuStatus, Happened, JobStatus, NodeStatus
from slurm_plugin.slurm.queries.queue import WaitingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """One node and its answer, if any.

    Attributes:
        name: Slurm's name of it.
        status: Its answer; its last one if it no longer answers; None if it never did.
        trouble: Why there is no fresh answer, or "".
    """

    name: str
    status: NodeStatus | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Everything that is shown.

    Attributes:
        time_s: When it was collected, seconds since the epoch.
        nodes: Every node.
        waiting: Jobs that wait for GPUs.
        queue_trouble: Why the queue is not known, or "".
        users: Names of users by id, as far as known.
    """

    time_s: float
    nodes: tuple[NodeAnswer, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()
    queue_trouble: str = ""
    users: Mapping[int, str] = field(default_factory=dict)

    def user(self, user_id: int) -> str:
        """Return a user's name, or the number if the name is unknown."""
        return self.users.get(user_id, str(user_id))

    def gpus(self) -> Iterator[tuple[NodeAnswer, GpuStatus]]:
        """Yield every GPU with its node."""
        for node in self.nodes:
            for gpu in node.status.gpus if node.status else ():
                yield node, gpu

    def jobs(self) -> Iterator[tuple[NodeAnswer, GpuStatus, JobStatus]]:
        """Yield every job on each of its GPUs."""
        for node, gpu in self.gpus():
            for job in gpu.jobs:
                yield node, gpu, job

    def happened(self) -> Iterator[tuple[NodeAnswer, Happened]]:
        """Yield recent actions on jobs, latest first."""
        pairs = [(node, one) for node in self.nodes if node.status for one in node.status.happened]
        yield from sorted(pairs, key=lambda pair: pair[1].time_s, reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over a fleet.

    Attributes:
        nodes: Nodes that answer.
        silent: Nodes that do not answer.
        gpus: GPUs that answer.
        busy: GPUs with a job.
        jobs: Jobs on them; one on two GPUs counts once.
        saved: Additional GPUs that these jobs would need with dedicated GPUs.
        usable_bytes: Memory of all GPUs.
        booked_bytes: Memory booked by jobs.
        used_bytes: Memory used by processes.
        smact: Mean SM activity of the GPUs that report it; None if none does.
        waiting: Jobs that wait for GPUs.
    """

    nodes: int
    silent: int
    gpus: int
    busy: int
    jobs: int
    saved: int
    usable_bytes: int
    booked_bytes: int
    used_bytes: int
    smact: float | None
    waiting: int


def totals(fleet: Fleet) -> Totals:
    """Return the sums over a fleet."""
    gpus = [gpu for _, gpu in fleet.gpus()]
    active = [gpu.smact for gpu in gpus if gpu.smact is not None]
    busy = [gpu for gpu in gpus if gpu.jobs]
    return Totals(
        nodes=sum(not node.trouble for node in fleet.nodes),
        silent=sum(bool(node.trouble) for node in fleet.nodes),
        gpus=len(gpus),
        busy=len(busy),
        jobs=len({job.job_id for gpu in busy for job in gpu.jobs}),
        saved=sum(len(gpu.jobs) - 1 for gpu in busy),
        usable_bytes=sum(gpu.usable_bytes for gpu in gpus),
        booked_bytes=sum(gpu.booked_bytes for gpu in gpus),
        used_bytes=sum(gpu.used_bytes for gpu in gpus),
        smact=sum(active) / len(active) if active else None,
        waiting=len(fleet.waiting),
    )
