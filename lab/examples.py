"""Submissions of `make demo`, the result of each, and how it differs from what is expected."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lab.watch import ObservedRun
from slurm_plugin.core.units import human

PEOPLE = {"nobody": "alice", "games": "bob"}
"""Names under which the demo shows the accounts that every machine has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One submission of the demo, and its expected result.

    Attributes:
        name: Its row in the table.
        sbatch: Arguments of sbatch.
        user: The submitting user.
        gpus: GPUs it holds.
        shared: Whether its first run shares a GPU; else its GPUs are dedicated.
        recovers: Whether it runs out of memory once and is rerun on a dedicated GPU.
        shows: Pattern of the required message at submission; None for any message.
    """

    name: str
    sbatch: tuple[str, ...]
    user: str = "nobody"
    gpus: int = 1
    shared: bool = True
    recovers: bool = False
    shows: str | None = None


EXAMPLES = (
    Example(name="two gpus", sbatch=("two_gpus.sh",), gpus=2, shared=False),
    Example(name="resnet18 a", sbatch=("share_resnet18.sh",)),
    Example(name="resnet18 b", sbatch=("share_resnet18.sh",), user="games"),
    Example(name="resnet18 c", sbatch=("share_resnet18.sh",)),
    Example(name="encoder a", sbatch=("share_encoder.sh",)),
    Example(name="encoder b", sbatch=("share_encoder.sh",), user="games"),
    Example(
        name="wrapped",
        sbatch=(
            "--job-name=wrapped",
            "--gpus=1",
            "--output=%x-%j.out",
            "--comment=rad:model=models/mlp_torchinfo.txt,batch_size=256",
            "--wrap=python3 fake_train.py --memory 0.9G --seconds 8 --smact 0.1",
        ),
    ),
    Example(name="resnet152", sbatch=("large_resnet152.sh",), user="games"),
    Example(name="grows", sbatch=("underestimated.sh",), recovers=True),
    Example(name="broken", sbatch=("broken_summary.sh",), shared=False, shows=r"models/broken\.txt"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRow:
    """One line of the table.

    Attributes:
        example: The submission.
        job_id: Slurm's id; None if it was refused.
        messages: Messages to the user at submission.
        fields: The job's properties at its end.
        runs: Its runs as observed on the GPUs.
        shards: Shards of each run's request.
        estimate_bytes: Its estimate; None if there was none.
        returns: Why it was requeued, each time: "recovered" or "requeued".
        submitted_priority: The highest priority that a job of the demo got from Slurm.
        rerun_priority: The highest priority of its rerun while that waited; 0 if there was none.
    """

    example: Example
    job_id: int | None
    messages: str
    fields: dict[str, str]
    runs: list[ObservedRun]
    shards: list[int]
    estimate_bytes: int | None
    returns: list[str]
    submitted_priority: int
    rerun_priority: int = 0

    def cells(self) -> tuple[str, ...]:
        """Return the row's text."""
        gpus = [",".join(str(index) for _, index in sorted(run.gpus)) for run in self.runs]
        return (
            f"{self.example.name} ({self.job_id})",
            "-" if self.estimate_bytes is None else human(self.estimate_bytes),
            " > ".join(str(count) if count else "gpu" for count in self.shards) or "-",
            " > ".join(gpus) or "-",
            " > ".join(human(run.peak_bytes) for run in self.runs) or "-",
            self.fields.get("waited", "-"),
            self.fields.get("JobState", "-"),
            self.fields.get("Restarts", "-"),
        )

    def faults(self, whole_shards: int) -> list[str]:
        """Return the differences from the example's expected result."""
        example, found = self.example, []
        if self.job_id is None:
            return [f"{example.name} was refused: {self.messages}"]
        wanted_runs = 2 if example.recovers else 1
        checks = {
            f"ended {self.fields.get('JobState')}": self.fields.get("JobState") == "COMPLETED",
            f"returned to the queue: {self.returns}": self.returns.count("recovered") == wanted_runs - 1,
            f"ran {len(self.runs)} times on a GPU": len(self.runs) == wanted_runs,
            f"held {[len(run.gpus) for run in self.runs]} GPUs": all(
                len(r.gpus) == example.gpus for r in self.runs
            ),
            f"requested {self.shards} shards": self._shards_fit(whole_shards),
            "has no estimate": self.estimate_bytes is not None or not example.shared,
        }
        found += [f"{example.name} {what}" for what, fine in checks.items() if not fine]
        alone = self.runs if not example.shared else self.runs[1:]
        found += [
            f"{example.name} had neighbours {sorted(run.neighbours)}" for run in alone if run.neighbours
        ]
        if example.shows is not None and not re.search(example.shows, self.messages):
            found.append(f"{example.name}: its user got {self.messages!r}")
        if example.recovers and self.rerun_priority <= self.submitted_priority:
            found.append(f"{example.name} waited for its rerun at priority {self.rerun_priority}")
        if int(self.fields.get("Priority", "0")) > self.submitted_priority:
            found.append(f"{example.name} kept priority {self.fields.get('Priority')}")
        return found

    def _shards_fit(self, whole_shards: int) -> bool:
        first, *reruns = self.shards or [0]
        if self.example.gpus > 1:
            return first == 0
        if not self.example.shared:
            return first in (0, whole_shards)
        last = reruns[-1] if reruns else first
        return 0 < first < whole_shards and (last in (0, whole_shards) or not self.example.recovers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A job's times, in seconds since the cluster was up.

    Attributes:
        gpus: GPUs that it requests.
        submitted_s: When it was submitted.
        start_s: When its last run started.
        end_s: When that ended.
    """

    gpus: int
    submitted_s: float
    start_s: float
    end_s: float


def whole_gpu_end_s(jobs: Sequence[Timed], *, gpus: int) -> float:
    """Return when the last job ends if each has whole GPUs and starts, in this order, once enough of them are free.

    Args:
        jobs: The jobs in the order of submission; run times are those with sharing.
        gpus: GPUs of the node; no job has more.
    """
    free_s, last_s = [0.0] * gpus, 0.0
    for job in jobs:
        taken = [heapq.heappop(free_s) for _ in range(job.gpus)]
        end_s = max(taken[-1], job.submitted_s) + job.end_s - job.start_s
        for _ in taken:
            heapq.heappush(free_s, end_s)
        last_s = max(last_s, end_s)
    return last_s
