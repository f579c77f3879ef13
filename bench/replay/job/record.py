"""Record the steps of a training, and pace them as its loader would."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

BACKLOG = 4
"""Batches that a loader keeps ready, as PyTorch's does with two workers and its default prefetching."""
MOST_POINTS = 200


class Loader:
    """Makes a batch each period, and waits while BACKLOG of them are ready."""

    def __init__(self, period_s: float) -> None:
        """Start now."""
        self.period_s = period_s
        self._ready_s = time.monotonic()
        self._taken: deque[float] = deque(maxlen=BACKLOG)

    def wait(self) -> None:
        """Return when a batch is there."""
        if self._taken:
            self._ready_s = max(self._ready_s, self._taken[0]) + self.period_s
        while (left_s := self._ready_s - time.monotonic()) > 0:
            time.sleep(left_s)
        self._taken.append(time.monotonic())


class Record:
    """The times of one run of a job, written whole at its end; times are seconds since the epoch."""

    def __init__(self, job: dict[str, Any], *, called_s: float) -> None:
        """Note that a run begins.

        Args:
            job: The planned job, with "records": the folder.
            called_s: When its script was called.
        """
        run = os.environ.get("SLURM_RESTART_COUNT", "0")
        self._path = Path(job["records"], f"{job['name']}.{run}.json")
        self._offset_s = time.time() - time.monotonic()
        self.ends: list[float] = []
        self.values: dict[str, Any] = {
            "slurm_id": int(os.environ.get("SLURM_JOB_ID", "0")),
            "gpus": os.environ.get("RAD_GPUS") or os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "mps": "CUDA_MPS_PIPE_DIRECTORY" in os.environ,
            "called_s": called_s,
            "outcome": "killed",
        }
        self._write()

    def note(self, name: str) -> None:
        """Note that something happened now."""
        self.values[name] = time.time()

    def close(self, outcome: str, **values: Any) -> None:
        """Write all of it."""
        ends = [end + self._offset_s for end in self.ends]
        self.values |= values | {"outcome": outcome, "end_s": time.time(), "steps_done": len(ends)}
        self.values |= _steps(ends)
        self._write()

    def _write(self) -> None:
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(self.values))
        draft.replace(self._path)


def _steps(ends: Sequence[float]) -> dict[str, Any]:
    """Return when steps ended: how many were done by when, and the deciles of the time from one to the next."""
    gaps = sorted(b - a for a, b in pairwise(ends))
    every = max(1, len(ends) // MOST_POINTS)
    points = [(round(end, 3), k + 1) for k, end in enumerate(ends) if k % every == 0 or k == len(ends) - 1]
    deciles = [round(gaps[min(len(gaps) - 1, k * len(gaps) // 10)], 6) for k in range(11)] if gaps else []
    return {"progress": points, "step_deciles_s": deciles}
