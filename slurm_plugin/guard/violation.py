"""One violation in one sample, and the response to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.units import human

ViolationKind = Literal["memory", "overrun", "foreign-gpu", "outside-mps", "unmanaged", "idle"]


Response = Literal["warn", "requeue", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One current violation.

    Attributes:
        kind: "memory": a shared job uses more than its limit. "overrun": it uses more than it booked, other jobs
            could no longer get what they booked, and no other job is as far above its own estimate. "foreign-gpu": a
            job uses a GPU that is not allocated to it, and either other jobs hold that GPU or it takes memory that
            the next job would lack. "outside-mps": a job uses its GPU without the MPS server it was given.
            "unmanaged": a process without an allocation is on a GPU that a job holds as a whole. "idle": a job holds
            memory of its GPU and computes nothing.
        gpu: UUID of the GPU.
        job_id: The job that caused it; None if no job did.
        user_id: The job's user; None if unknown.
        restart: Restart count of the job's run.
        used_bytes: Memory it uses on that GPU.
        limit_bytes: Memory it may use there.
        free_bytes: Free memory of the GPU.
        processes: The processes that use it.
        response: The response, from rad.toml and from whether it can affect other jobs.
        idle_s: How long an idle job has computed nothing.
        then: What happens to the job if nothing changes; "" for nothing.
    """

    kind: ViolationKind
    gpu: str
    job_id: int | None
    user_id: int | None
    used_bytes: int
    limit_bytes: int
    free_bytes: int
    processes: tuple[Process, ...]
    restart: int = 0
    response: Response = "warn"
    idle_s: float = 0.0
    then: str = ""

    def sentence(self) -> str:
        """Return a description of the violation for people."""
        used, pids = human(self.used_bytes), ", ".join(str(one.pid) for one in self.processes)
        match self.kind:
            case "memory":
                return f"uses {used} on {self.gpu}, above its limit of {human(self.limit_bytes)} (pid {pids})"
            case "overrun":
                booked = human(self.limit_bytes)
                return f"uses {used} on {self.gpu}, booked {booked}, and another job lacks booked memory (pid {pids})"
            case "foreign-gpu":
                return f"uses {used} on {self.gpu}, which is not allocated to it (pid {pids})"
            case "outside-mps":
                return f"uses {self.gpu} without its MPS server (pid {pids}, {used})"
            case "idle":
                for_min = f"{self.idle_s / 60:.0f} min"
                return f"has used {used} on {self.gpu} and computed nothing for {for_min} (pid {pids}){self.then}"
            case "unmanaged":
                subject = "a process of no job" if self.job_id is None else f"job {self.job_id}"
                return f"{subject} uses {used} on {self.gpu}, which a job has exclusively (pid {pids})"
