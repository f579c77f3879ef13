"""`make demo`: jobs that share GPUs on a real Slurm, one that runs out of memory, and the result of each."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import shorten

from lab.cluster import Cluster
from lab.config import shards_of
from lab.daemons import TIME_FACTOR
from lab.examples import EXAMPLES, PEOPLE, Example, ExampleRow, Timed, whole_gpu_end_s
from lab.jobs import ENDED, Jobs
from lab.place import PATIENT_S, ClusterSpec, NodeSpec
from lab.watch import Watcher
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.comments.admin_comment import read_note
from slurm_plugin.core.comments.signed_comment import read_key, read_signed_booking
from slurm_plugin.core.units import counted
from slurm_plugin.monitor.gpus.telemetry import Telemetry

NODE_NAME = "n0"
TIME_LIMIT_S = 110.0 * TIME_FACTOR
SAMPLE_S = 0.1
LINE = 110
"""Most characters of a quoted sentence."""
NEXT = """
Try next:
  make lab-up                                                       a cluster that stays up
  python3 -m lab exec rad-estimate examples/share_resnet18.sh       what would sbatch book?
  python3 -m lab exec sbatch --gpus=1 --comment="rad:memory=6G" --wrap="sleep 60"
  python3 -m lab exec rad status                                    the jobs on each GPU
  make lab-down"""


class Demo:
    """One run of the demo on a fresh cluster."""

    def __init__(
        self, cluster: Cluster, node: NodeSpec, gpus: Telemetry, *, checkout: Path, say: Callable[[str], None]
    ) -> None:
        """Prepare.

        Args:
            cluster: The cluster to start.
            node: Its only node, called NODE_NAME.
            gpus: Observer of the node's GPUs.
            checkout: The source.
            say: Prints a line.
        """
        self._cluster, self._node, self._say = cluster, node, say
        self._examples = checkout / "examples"
        self._watcher = Watcher({node.name: gpus})
        self._names: dict[int, str] = {}
        self._last: dict[int, dict[str, str]] = {}
        self._states: dict[int, str] = {}
        self._shards: dict[int, list[int]] = {}
        self._waited: dict[int, list[float]] = {}
        self._submitted_s: dict[int, float] = {}
        self._ended_s: dict[int, float] = {}
        self._returns: dict[int, dict[int, str]] = {}
        self._highest_priority = 0
        self._rerun_priority: dict[int, int] = {}

    def run(self) -> bool:
        """Start, submit, watch, stop; return whether all went as expected."""
        cluster = self._cluster
        try:
            cluster.up(ClusterSpec(nodes=(self._node,), answer_s=PATIENT_S))
            self._start_s = cluster.clock.monotonic_s()
            kind = "real" if self._node.devices else "simulated"
            self._say(f"Slurm is up: node {self._node.name} with {len(self._node.gpu_mib)} {kind} GPUs")
            accounts = " and ".join(f"{name} (as user {user})" for user, name in PEOPLE.items())
            self._say(f"{accounts} submit jobs")
            rows = self._follow(self._submit())
        finally:
            cluster.down()
        took_s = cluster.clock.monotonic_s() - self._start_s
        self._say("\n" + table([row.cells() for row in rows]) + "\n")
        faults = [fault for row in rows for fault in row.faults(shards_of(self._node.gpu_mib[0]))]
        faults += self._shared_faults(rows)
        for fault in faults:
            self._say(f"differs: {fault}")
        outcome = "as expected" if not faults else f"{len(faults)} differences; logs: {cluster.place.log}"
        together = sum(any(run.neighbours for run in row.runs) for row in rows)
        self._say(
            f"{len(rows)} jobs on {len(self._node.gpu_mib)} GPUs in {took_s:.0f} s, {together} shared a GPU: {outcome}"
        )
        for line in self._compared(rows):
            self._say(line)
        self._say(NEXT)
        return not faults

    def _submit(self) -> list[tuple[Example, int | None, str]]:
        folder = self._cluster.place.root / "work"
        shutil.copytree(self._examples, folder)
        folder.chmod(0o1777)
        self._jobs = Jobs(self._cluster, folder)
        submitted = []
        for example in EXAMPLES:
            if example.gpus > len(self._node.gpu_mib):
                self._say(f"         {example.name} is left out: the node has too few GPUs")
                continue
            answer = self._jobs.submit(*example.sbatch, user=example.user)
            self._say(f"{self._clock()} {PEOPLE[example.user]} submits {example.name}: job {answer.job_id}")
            for line in answer.messages.splitlines():
                self._say(f"         {line}")
            submitted.append((example, answer.job_id, answer.messages))
            if answer.job_id is not None:
                self._names[answer.job_id] = example.name
                self._submitted_s[answer.job_id] = self._cluster.clock.monotonic_s() - self._start_s
            self._look()  # on a slow machine the first end before the last is submitted
        return submitted

    def _look(self) -> None:
        """Sample the GPUs, and record each job's state."""
        self._watcher.sample()
        for job_id, fields in self._jobs.all_fields().items():
            self._last[job_id] = fields
            self._note(self._names.get(job_id, "?"), job_id, fields)

    def _follow(self, submitted: Sequence[tuple[Example, int | None, str]]) -> list[ExampleRow]:
        open_jobs, last = set(self._names), self._last
        deadline = Deadline(self._cluster.clock, TIME_LIMIT_S)
        while open_jobs and not deadline.passed():
            self._look()
            self._cluster.clock.sleep(SAMPLE_S)
            recovering = {
                job_id for example, job_id, _ in submitted if example.recovers and job_id is not None
            }
            open_jobs -= {job for job in open_jobs if self._is_over(last.get(job, {}), job in recovering)}
        return [
            ExampleRow(
                example=example,
                job_id=job_id,
                messages=messages,
                fields=last.get(job_id or 0, {}) | {"waited": self._waits(job_id or 0)},
                runs=self._watcher.of(job_id or 0),
                shards=self._shards.get(job_id or 0, []),
                estimate_bytes=self._estimate(last.get(job_id or 0, {})),
                returns=list(self._returns.get(job_id or 0, {}).values()),
                submitted_priority=self._highest_priority,
                rerun_priority=self._rerun_priority.get(job_id or 0, 0),
            )
            for example, job_id, messages in submitted
        ]

    @staticmethod
    def _is_over(fields: dict[str, str], recovers: bool) -> bool:
        """Return whether a job has finally ended; a failed job that is to recover gets time for it."""
        state = fields.get("JobState")
        return state == "COMPLETED" or (state in ENDED and not (recovers and fields.get("Restarts") == "0"))

    def _note(self, name: str, job_id: int, fields: dict[str, str]) -> None:
        """Report a change of state, and record each run's request and waiting time."""
        state, restarts = fields.get("JobState", ""), int(fields.get("Restarts", "0"))
        priority = int(fields.get("Priority", "0"))
        if not restarts:
            self._highest_priority = max(self._highest_priority, priority)
        elif state == "PENDING":
            self._rerun_priority[job_id] = max(self._rerun_priority.get(job_id, 0), priority)
        mark = f"{state}{restarts}"
        if restarts and (note := read_note(fields.get("AdminComment", ""))) is not None:
            self._returns.setdefault(job_id, {})[restarts] = note.event
        if self._states.get(job_id) == mark:
            return
        self._states[job_id] = mark
        if state == "RUNNING":
            shards = count_of(parse_gres(fields.get("TresPerNode")), "shard")
            self._shards.setdefault(job_id, []).append(shards)
            self._waited.setdefault(job_id, []).append(self._cluster.clock.monotonic_s() - self._start_s)
            self._say(f"{self._clock()} {name} runs ({counted(shards, 'shard') if shards else 'whole GPUs'})")
        elif state == "PENDING" and restarts:
            self._say(
                f"{self._clock()} {name} is back in the queue: {why_back(fields.get('AdminComment', ''))}"
            )
        elif state in ENDED:
            self._ended_s[job_id] = self._cluster.clock.monotonic_s() - self._start_s
            self._say(f"{self._clock()} {name} {state.lower()}")

    def _waits(self, job_id: int) -> str:
        return " > ".join(f"{seconds:.0f} s" for seconds in self._waited.get(job_id, [])) or "-"

    def _clock(self) -> str:
        return f"{self._cluster.clock.monotonic_s() - self._start_s:5.1f} s"

    def _estimate(self, fields: dict[str, str]) -> int | None:
        key = read_key(self._cluster.place.etc / "key")
        match = re.search(r"\((\d+)\)", fields.get("UserId", ""))
        booking = (
            read_signed_booking(fields.get("Comment", ""), user_id=int(match[1]), key=key) if match else None
        )
        return booking.estimate_bytes if booking else None

    def _compared(self, rows: Sequence[ExampleRow]) -> Iterator[str]:
        """Yield when the jobs ended, and when they would have ended on whole GPUs."""
        once: list[Timed] = []
        for row in rows:
            job_id = row.job_id or 0
            if job_id not in self._ended_s or job_id not in self._waited:
                continue
            end_s = self._ended_s[job_id]
            if row.example.recovers:
                yield f"{row.example.name} ran out of memory; its rerun on a whole GPU ended after {end_s:.0f} s"
                continue
            once.append(
                Timed(
                    gpus=row.example.gpus,
                    submitted_s=self._submitted_s[job_id],
                    start_s=self._waited[job_id][-1],
                    end_s=end_s,
                )
            )
        if once:
            shared_s = max(job.end_s for job in once)
            whole_s = whole_gpu_end_s(once, gpus=len(self._node.gpu_mib))
            yield (
                f"the other {len(once)} jobs ended after {shared_s:.0f} s; with whole GPUs, as without RAD, "
                f"the same runs would end after {whole_s:.0f} s"
            )

    def _shared_faults(self, rows: Sequence[ExampleRow]) -> list[str]:
        faults = []
        if not any(run.neighbours for row in rows for run in row.runs):
            faults.append("no two jobs shared a GPU")
        if self._watcher.fullest_share > 1.0:
            faults.append("a GPU used more than its memory")
        return faults


def why_back(admin_comment: str) -> str:
    """Return a note's sentence, whole words of it that fit on a line."""
    note = read_note(admin_comment)
    return shorten(admin_comment if note is None else note.detail, LINE, placeholder=" ...")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows under their headings, in columns."""
    headings = ("job", "estimate", "shards", "GPU", "peak", "started after", "state", "restarts")
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    lines = [headings, tuple("-" * width for width in widths), *rows]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )
