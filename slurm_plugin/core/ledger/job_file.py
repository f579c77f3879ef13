"""File that the Prolog leaves for the tasks of a job, owned by root: RUN/placed/ID.

    # {"boot_id": ..., "created_s": ..., "allocation": ...}    what a lost ledger is rebuilt from
    export CUDA_VISIBLE_DEVICES=GPU-...                         what TaskProlog exports
    refused the GPU is in use                                   instead of that: no task of this run may start
    unplaced                                                    the Prolog was killed (written by gres_conf/prolog.sh)

Tasks read it and only root writes here: nothing below paths.run belongs to a user.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from gpumemnet.records import frozen
from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.files.preallocated import SpareFiles
from slurm_plugin.core.ledger.codec import allocation_from
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import KIB

LONGEST = 64 * KIB
"""No such file is longer; a larger one is not RAD's."""

_ONE_LINE = {ord("\n"): " ", ord("\r"): " "}


@frozen
class PlacedFile:
    """Content of a job's file.

    Attributes:
        job_id: Slurm's job id.
        created_s: When it was written, seconds since boot; None if that was another boot.
        allocation: The job's allocation; None if it has none, or the file cannot be read.
    """

    job_id: int
    created_s: float | None
    allocation: Allocation | None


class JobFile:
    """The file of one job. Writing raises the OSError of the file system."""

    def __init__(self, run: Path, job_id: int) -> None:
        self._job_id = job_id
        self._path = run / "placed" / str(job_id)
        self._run = run

    def place(self, variables: Mapping[str, str], allocation: Allocation, *, boot_id: str) -> None:
        """Write what every task of the job gets, and the job's allocation.

        Args:
            variables: By name; what TaskProlog prints.
            allocation: The job's allocation.
            boot_id: The present boot of the node.
        """
        self._write(_head(allocation, boot_id), _exports(variables))

    def refuse(self, reason: str, *, boot_id: str, now_s: float) -> None:
        """Prevent all tasks of this run from starting.

        Args:
            reason: The reason, for the user.
            boot_id: The present boot.
            now_s: Seconds since boot.
        """
        self._write({"boot_id": boot_id, "created_s": now_s, "allocation": None}, [f"refused {reason}"])

    def mark(self, variables: Mapping[str, str], *, boot_id: str, now_s: float) -> None:
        """Mark a job as managed although it is not placed: its tasks get only the variables that its submission needs.

        Args:
            variables: These variables, by name.
            boot_id: The present boot of the node.
            now_s: Seconds since the node's boot.
        """
        self._write({"boot_id": boot_id, "created_s": now_s, "allocation": None}, _exports(variables))

    def variables(self) -> dict[str, str]:
        """Return what every task of the job gets; nothing if the job was not managed."""
        return dict(pair.partition("=")[::2] for pair in self._lines("export "))

    def refusal(self) -> str | None:
        """Return why the job must not start; None if it may."""
        return next(self._lines("refused "), None)

    def unplaced(self) -> bool:
        """Return whether the Prolog of this run was killed before it had placed the job."""
        return next(self._lines("unplaced"), None) is not None

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self._path.exists()

    def remove(self) -> None:
        """Remove the file; nothing happens if there is none."""
        SpareFiles(self._run).discard(self._path)

    def read(self, *, boot_id: str) -> PlacedFile:
        """Return the content of the file."""
        nothing = PlacedFile(job_id=self._job_id, created_s=None, allocation=None)
        try:
            head = json.loads(_text(self._path).partition("\n")[0].removeprefix("# "))
            if head["boot_id"] != boot_id:
                return nothing
            found = replace(nothing, created_s=float(head["created_s"]))
            allocation = None if head["allocation"] is None else allocation_from(head["allocation"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, LedgerError):
            return nothing
        return (
            found
            if allocation is None or allocation.job_id != self._job_id
            else replace(found, allocation=allocation)
        )

    def _lines(self, mark: str) -> Iterator[str]:
        return (line.removeprefix(mark) for line in _text(self._path).split("\n") if line.startswith(mark))

    def _write(self, head: Mapping[str, object], lines: list[str]) -> None:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        text = "".join(f"{line.translate(_ONE_LINE)}\n" for line in (f"# {json.dumps(head)}", *lines))
        SpareFiles(self._run).write(self._path, text.encode(errors="replace"))


def placed_files(run: Path, *, boot_id: str) -> tuple[PlacedFile, ...]:
    """Return the contents of all job files.

    Args:
        run: Folder of the node's state (`paths.run`).
        boot_id: The present boot of the node.
    """
    try:
        names = os.listdir(run / "placed")
    except OSError:
        return ()
    return tuple(JobFile(run, int(name)).read(boot_id=boot_id) for name in names if name.isdecimal())


def _head(allocation: Allocation, boot_id: str) -> dict[str, object]:
    return {"boot_id": boot_id, "created_s": allocation.created_s, "allocation": asdict(allocation)}


def _exports(variables: Mapping[str, str]) -> list[str]:
    return [f"export {name}={value}" for name, value in variables.items()]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LONGEST).decode(errors="replace")
    except OSError:
        return ""
