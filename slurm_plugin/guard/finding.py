"""One thing that is wrong in one sample, and what is to be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.units import human

Kind = Literal["memory", "surprise", "foreign-gpu", "outside-mps", "unmanaged"]


Response = Literal["warn", "requeue", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong now.

    Attributes:
        kind: "memory": a shared job holds more than its cap. "surprise": it holds more than it booked, its neighbours
            could no longer get what they booked, and no other is as far above its own estimate. "foreign-gpu": a job
            uses a GPU that is not its own, be it that others hold it or that it takes memory which the next job would
            miss. "outside-mps": a job uses its GPU past the MPS server it was given. "unmanaged": a process without a
            reservation is on a GPU that a job holds as a whole.
        gpu: UUID of the GPU.
        job_id: Whose doing it is; None if no job's.
        user_id: Who runs it; None if unknown.
        restart: Restart count of the job's run.
        held_bytes: What it holds on that GPU.
        limit_bytes: What it may hold there.
        free_bytes: What is left on the GPU.
        processes: Those that hold it.
        response: What is to be done, by rad.toml and by whether it can hurt anybody.
    """

    kind: Kind
    gpu: str
    job_id: int | None
    user_id: int | None
    held_bytes: int
    limit_bytes: int
    free_bytes: int
    processes: tuple[Process, ...]
    restart: int = 0
    response: Response = "warn"

    @property
    def excess_bytes(self) -> int:
        """Return what it holds and may not."""
        return self.held_bytes - self.limit_bytes

    def sentence(self) -> str:
        """Return what is wrong, for people."""
        held, pids = human(self.held_bytes), ", ".join(str(one.pid) for one in self.processes)
        match self.kind:
            case "memory":
                return f"holds {held} on {self.gpu} and booked {human(self.limit_bytes)} (pid {pids})"
            case "surprise":
                booked = human(self.limit_bytes)
                return f"holds {held} on {self.gpu}, booked {booked}, and others need theirs (pid {pids})"
            case "foreign-gpu":
                return f"holds {held} on {self.gpu}, which is not its own (pid {pids})"
            case "outside-mps":
                return f"uses {self.gpu} past its MPS server (pid {pids}, {held})"
            case "unmanaged":
                who = "nobody's job" if self.job_id is None else f"job {self.job_id}"
                return f"{who} holds {held} on {self.gpu}, which a job holds as a whole (pid {pids})"
