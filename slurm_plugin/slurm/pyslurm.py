"""Slurm through pyslurm, where a pyslurm made for the running Slurm is installed.

pyslurm's release must be that of Slurm (25.11.x for Slurm 25.11). Two facts decide where it may be used:

- Importing it reads slurm.conf, and where there is none libslurm ends the process. So it is imported when the object
  is created, never at import of this module, and only daemons and `rad` use it; hooks use Slurm's commands.
- Its calls block inside libslurm, where RAD cannot limit their time; slurmctld's MessageTimeout (10 s by default)
  bounds them.

Source: pyslurm 25.11 API reference; behaviour checked against a running 26.05.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import JobChange, JobView, NodeView, Standing

T = TypeVar("T")

_UNKNOWN_JOB = 2017  # slurm_errno.h: ESLURM_INVALID_JOB_ID
_ALREADY_PENDING = 2024  # slurm_errno.h: ESLURM_JOB_PENDING


class PyslurmControl:
    """SlurmControl over pyslurm.

    Args:
        slurm_conf: slurm.conf, or None for the one that libslurm finds.
        clock: For start times relative to now.

    Raises:
        SlurmError: pyslurm is not installed, or there is no slurm.conf to read.
    """

    def __init__(self, *, slurm_conf: Path | None, clock: Clock) -> None:
        conf = slurm_conf or Path(os.environ.get("SLURM_CONF", "/etc/slurm/slurm.conf"))
        if not conf.is_file():
            raise SlurmError(
                f"{conf}: not there, and pyslurm ends the process without it; set paths.slurm_conf"
            )
        # libslurm accepts the path in no other way.
        os.environ["SLURM_CONF"] = str(conf)
        try:
            import pyslurm  # type: ignore[import-not-found,unused-ignore]
        except ImportError as exc:
            raise SlurmError(f"pyslurm cannot be imported ({exc}); Slurm's own commands can be used") from exc
        self._pyslurm: Any = pyslurm
        self._commands = SlurmCommands(slurm_conf=str(conf))
        self._clock = clock

    def version(self) -> tuple[int, int, int]:
        """Return Slurm's version."""
        config = self._ask(self._pyslurm.slurmctld.Config.load)
        major, minor, micro = [*str(config.version).split("-")[0].split("."), "0", "0"][:3]
        return int(major), int(minor), int(micro)

    def job(self, job_id: int) -> JobView | None:
        """Return a job, or None if Slurm no longer knows it."""
        try:
            return _job_view(self._pyslurm.Job.load(job_id))
        except UnicodeDecodeError:  # some text of its user is not UTF-8
            return self._commands.job(job_id)
        except self._pyslurm.RPCError as exc:
            if exc.errno == _UNKNOWN_JOB:
                return None
            raise SlurmError(f"job {job_id}: {exc}") from exc

    def standing(self, job_id: int) -> Standing | None:
        """Return the queue position of a job; by Slurm's command: pyslurm does not report ages."""
        return self._commands.standing(job_id)

    def standings(self) -> tuple[Standing, ...]:
        """Return the queue positions of all jobs that wait; by the same command."""
        return self._commands.standings()

    def nodes(self) -> tuple[NodeView, ...]:
        """Return all nodes."""
        return tuple(
            NodeView(
                name=node.name,
                address=node.address or "",
                gres=",".join(f"{name}:{count}" for name, count in (node.configured_gres or {}).items()),
                state=str(node.state).split("+")[0],
                partitions=tuple(node.partitions or ()),
                reason=node.reason or "",
            )
            for node in self._ask(self._pyslurm.Nodes.load).values()
        )

    def config(self) -> dict[str, str]:
        """Return the running configuration; by Slurm's command: pyslurm uses different names and lists for it."""
        return self._commands.config()

    def requeue_delay_s(self) -> int:
        """Return the minimum wait of a requeued job, by the slurm.conf of this machine."""
        return self._commands.requeue_delay_s()

    def requeue(self, job_id: int) -> None:
        """Requeue a job; already pending is success."""
        if self._is_task(job_id):
            self._commands.requeue(job_id)
            return
        try:
            self._pyslurm.Job(job_id).requeue()
        except self._pyslurm.RPCError as exc:
            if exc.errno != _ALREADY_PENDING:
                raise SlurmError(f"job {job_id}: requeue: {exc}") from exc

    def update(self, job_id: int, change: JobChange) -> None:
        """Change a job in one request.

        Args:
            job_id: The job.
            change: The changes; fields that are None stay.
        """
        if self._is_task(job_id) or change.per_task is not None:
            self._commands.update(job_id, change)
            return
        wanted: dict[str, Any] = {
            "gres_per_node": change.gres,
            "comment": change.comment,
            "admin_comment": change.admin_comment,
            "nice": change.nice,
        }
        if change.start_now or change.start_in_s is not None:
            wanted["begin_time"] = int(self._clock.now_s()) + (change.start_in_s or 0)
        fields = {name: value for name, value in wanted.items() if value is not None}
        description = self._pyslurm.JobSubmitDescription(**fields)
        self._ask(lambda: self._pyslurm.Job(job_id).modify(description))

    def _is_task(self, job_id: int) -> bool:
        """Return whether a job is part of an array: pyslurm cannot distinguish its id from that of its last task."""
        return self._commands.exact(job_id) != str(job_id)

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except self._pyslurm.PyslurmError as exc:
            raise SlurmError(str(exc)) from exc


def _job_view(job: Any) -> JobView:
    return JobView(
        job_id=job.id,
        user_id=job.user_id,
        state=job.state,
        reason=job.state_reason if job.state_reason not in (None, "None") else "",
        partition=job.partition or "",
        # tres_per_node, its successor, leaves shards out in 25.11.
        gres=",".join(f"{name}:{count}" for name, count in (job.gres_per_node or {}).items()),
        node=job.batch_host or job.allocated_nodes or "",
        comment=job.comment or "",
        admin_comment=job.admin_comment or "",
        priority=job.priority or 0,
        nice=getattr(job, "nice", None) or 0,
        requeue=bool(job.is_requeueable),
        restarts=job.requeue_count or 0,
        batch=bool(job.is_batch_job),
        start_time_s=job.start_time,
    )
