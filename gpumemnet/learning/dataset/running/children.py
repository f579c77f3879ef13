"""The runner's view of a child process, and its interface to the GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

from gpumemnet.learning.dataset.running.child import MeasurementJob


class MeasuredGpu(Protocol):
    """Interface of the runner to the GPU (see `nvml.Device`)."""

    def usable_bytes(self) -> int:
        """Return the memory that processes can share."""
        ...

    def processes(self) -> dict[int, int]:
        """Return the bytes each process holds."""
        ...

    def begin_activity(self) -> None:
        """Take the first sample of the activity counters."""
        ...

    def end_activity(self) -> dict[str, float | None]:
        """Return the activity since the first sample."""
        ...


@dataclass(slots=True)
class TrainingChild:
    """A live child process, as seen by the runner.

    Its state goes from "estimating" over "ready" and "training" (and "texts") to "idle", and then around again or to
    "ending".
    """

    pid: int
    pipe: Connection
    job: MeasurementJob
    libraries: str
    state: str = "estimating"
    since_s: float = 0.0
    reserved_bytes: int = 0
    peak_bytes: int | None = None
    neighbours: int = 0
    runs_before: int = 0
    activity: dict[str, float | None] = field(default_factory=dict)
    row: dict[str, Any] | None = None

    @property
    def training(self) -> bool:
        """Whether it may use the memory reserved for it."""
        return self.state in ("training", "texts") or (self.state == "ending" and self.reserved_bytes > 0)
