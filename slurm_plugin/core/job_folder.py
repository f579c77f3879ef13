"""What the hooks of one job leave for each other on its node.

RUN/jobs/ID/               root's, 0755
RUN/jobs/ID/env            what TaskProlog exports, root's, 0444
RUN/jobs/ID/refused        why the job must not start here now
RUN/jobs/ID/reservation.json   see ledger_store.py
RUN/jobs/ID/task/          the job owner's, 0700
RUN/jobs/ID/task/names   what patterns in output paths stand for, as the owner tells it
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.core.ledger_store import replace_file
from slurm_plugin.core.units import KIB

LONGEST = 64 * KIB
"""No file here is longer; a larger one is not ours."""


class JobFolder:
    """The folder of one job.

    Every method raises OSError where the file system does.
    """

    def __init__(self, run: Path, job_id: int) -> None:
        self.path = run / "jobs" / str(job_id)

    def create(self, *, user_id: int, group_id: int) -> None:
        """Make the folder, with nothing of an earlier run in it."""
        self.remove()
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o755)
        task = self.path / "task"
        task.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(task, user_id, group_id)

    def remove(self) -> None:
        """Take the folder away; nothing happens if there is none."""
        try:
            for name in _OWN_FILES:
                (self.path / name).unlink(missing_ok=True)
            (self.path / "task").rmdir()
            self.path.rmdir()
        except OSError:
            self._remove_all()

    def _remove_all(self) -> None:
        """Take away whatever is there, also what the job's owner put into task/."""
        if self.path.exists():
            import shutil  # not at the top: five times the import time of this module, and rarely needed

            shutil.rmtree(self.path, ignore_errors=True)

    def write_environment(self, variables: Mapping[str, str]) -> None:
        """Write the variables that every task of the job gets."""
        lines = [f"export {name}={value.translate(_ONE_LINE)}\n" for name, value in variables.items()]
        replace_file(self.path / "env", "".join(lines).encode(), mode=0o444)

    def environment(self) -> dict[str, str]:
        """Return the variables that every task of the job gets; none if the job was left alone."""
        lines = _text(self.path / "env").splitlines()
        return dict(line.removeprefix("export ").partition("=")[::2] for line in lines)

    def refuse(self, reason: str) -> None:
        """Let no task of this run start."""
        replace_file(self.path / "refused", reason.encode(), mode=0o444)

    def refusal(self) -> str | None:
        """Return why the job must not start; None if it may."""
        return _text(self.path / "refused") or None

    @property
    def names(self) -> Path:
        """Return the file in which the owner's TaskProlog tells what patterns in output paths stand for."""
        return self.path / "task" / "names"


_OWN_FILES = ("env", "refused", "reservation.json", "task/names")
_ONE_LINE = {ord("\n"): " ", ord("\r"): " "}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LONGEST).decode(errors="replace")
    except OSError:
        return ""
