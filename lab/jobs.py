"""Submit jobs to a private cluster and follow them to their end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.cluster import Cluster
from lab.daemons import LabError, wait_until
from slurm_plugin.core.errors import CommandError

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
_FIELD = re.compile(r"(?:^| )([A-Z][A-Za-z:/]*)=(.*?)(?= [A-Z][A-Za-z:/]*=|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResult:
    """Result of a submission.

    Attributes:
        job_id: Slurm's id; None if the job was refused.
        messages: Messages to the user.
    """

    job_id: int | None
    messages: str


class Jobs:
    """The jobs of one cluster, each read with `scontrol show job`."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder

    def submit(
        self, *argv: str, user: str = "nobody", env: Mapping[str, str] | None = None, stdin: str | None = None
    ) -> SubmitResult:
        """Run sbatch in the folder as a user and return the result."""
        command = (
            "runuser",
            "-u",
            user,
            "--",
            "sh",
            "-c",
            'cd "$0" && exec sbatch "$@" 2>&1',
            str(self.folder),
        )
        try:
            text = self.cluster.slurm(*command, "--parsable", *argv, env=env, stdin=stdin)
        except CommandError as exc:
            return SubmitResult(job_id=None, messages=exc.output)
        lines = text.splitlines()
        ids = [line for line in lines if line.isdigit()]
        messages = "\n".join(line for line in lines if line not in ids[-1:])
        return SubmitResult(job_id=int(ids[-1]) if ids else None, messages=messages)

    def accepted(self, *argv: str, user: str = "nobody", env: Mapping[str, str] | None = None) -> int:
        """Submit a job that must be accepted, and return its id.

        Raises:
            LabError: It was refused.
        """
        job = self.submit(*argv, user=user, env=env)
        if job.job_id is None:
            raise LabError(job.messages)
        return job.job_id

    def fields(self, job_id: int | str) -> dict[str, str]:
        """Return a job's properties as `scontrol show job` names them; empty if Slurm no longer knows it."""
        try:
            text = self.cluster.slurm("scontrol", "-o", "-d", "show", "job", str(job_id))
        except CommandError:
            return {}
        return _parsed(text.splitlines()[0])

    def all_fields(self) -> dict[int, dict[str, str]]:
        """Return the properties of every job that Slurm knows, by id."""
        try:
            text = self.cluster.slurm("scontrol", "-o", "-d", "show", "job")
        except CommandError:
            return {}
        rows = [_parsed(line) for line in text.splitlines()]
        return {int(row["JobId"]): row for row in rows if "JobId" in row}

    def state(self, job_id: int | str) -> str:
        """Return a job's state, "" if it is unknown."""
        return self.fields(job_id).get("JobState", "")

    def restarts(self, job_id: int | str) -> int:
        """Return how often a job was requeued; -1 if unknown, which is neither never nor once."""
        return int(self.fields(job_id).get("Restarts", "-1"))

    def wait(self, job_id: int | str, *states: str, timeout_s: float = 30.0) -> dict[str, str]:
        """Return a job's properties as soon as it is in one of the states; without any, as soon as it has ended.

        Raises:
            LabError: It did not get there in time.
        """
        wanted = states or ENDED
        seen: dict[str, str] = {}

        def there() -> bool:
            seen.clear()
            seen.update(self.fields(job_id))
            return seen.get("JobState") in wanted

        what = f"job {job_id} {' or '.join(states) or 'ends'}"
        try:
            self.cluster.wait(what, there, timeout_s)
        except LabError as exc:
            now = [f"{name}={seen.get(name)}" for name in ("JobState", "Reason", "ExitCode", "Restarts")]
            raise LabError(f"{exc}, but {' '.join(now)}: {self.output(job_id)[-500:]!r}") from exc
        return seen

    def starts(self, job_id: int, *, within_s: float = 15.0) -> bool:
        """Return whether a job runs within a time, also where nothing else waits for it."""
        try:
            wait_until(
                "it runs",
                lambda: self.state(job_id) == "RUNNING",
                timeout_s=within_s,
                clock=self.cluster.clock,
            )
        except LabError:
            return False
        return True

    def output(self, job_id: int | str) -> str:
        """Return a job's output; "" if there is none yet."""
        path = Path(self.fields(job_id).get("StdOut", ""))
        try:
            return path.read_text(errors="replace")
        except OSError:
            return ""


def _parsed(line: str) -> dict[str, str]:
    return {name: value.strip() for name, value in _FIELD.findall(line)}
