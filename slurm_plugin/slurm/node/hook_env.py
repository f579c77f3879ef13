"""Job data that Slurm passes to Prolog and Epilog, read from their environment once.

Source: https://slurm.schedmd.com/prolog_epilog.html; 22.05 sets neither array ids nor the job's name, and the paths
of its output only if the user named them, with %j and the like not expanded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from slurm_plugin.core.errors import SlurmError

_INDEX_RANGE = re.compile(r"^(\d{1,4})(?:-(\d{1,4}))?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookJob:
    """A job as a hook on its node sees it.

    Attributes:
        job_id: Slurm's job id.
        user_id: The job's user.
        group_id: The user's group for this job.
        user_name: The user's name, or "".
        account: The job's Slurm account, or "": a user may name any, unless Slurm enforces associations.
        partition: Partition name.
        restart: How often the job was requeued. In an Epilog caused by a requeue, this is already one more than in the
            Prolog of the same run.
        comment: The job's comment.
        gpu_indices: GPU indices that Slurm allocated on this node; empty for a job without GPUs.
        work_dir: Where the job was submitted.
        stdout: Output path as the user wrote it, or "".
        stderr: Error path as the user wrote it, or "".
        exit_status: Wait status of the batch script; None outside an Epilog.
        derived_exit: Highest exit status of the job's steps.
        node: Name of this node.
        several_nodes: Whether the job has further nodes.
    """

    job_id: int
    user_id: int
    group_id: int
    user_name: str = ""
    account: str = ""
    partition: str = ""
    restart: int = 0
    comment: str = ""
    gpu_indices: tuple[int, ...] = ()
    work_dir: str = ""
    stdout: str = ""
    stderr: str = ""
    exit_status: int | None = None
    derived_exit: int = 0
    node: str = ""
    several_nodes: bool = False

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> HookJob:
        """Return the job of a hook's environment.

        Raises:
            SlurmError: Job id or user is missing, so this is not a hook of slurmd.
        """
        try:
            return cls(
                job_id=int(env["SLURM_JOB_ID"]),
                user_id=int(env["SLURM_JOB_UID"]),
                group_id=int(env.get("SLURM_JOB_GID", env["SLURM_JOB_UID"])),
                user_name=env.get("SLURM_JOB_USER", ""),
                account=env.get("SLURM_JOB_ACCOUNT", ""),
                partition=env.get("SLURM_JOB_PARTITION", ""),
                restart=int(env.get("SLURM_JOB_RESTART_COUNT", "0")),
                comment=env.get("SLURM_JOB_COMMENT", ""),
                gpu_indices=parse_indices(env.get("SLURM_JOB_GPUS", "")),
                work_dir=env.get("SLURM_JOB_WORK_DIR", ""),
                stdout=env.get("SLURM_JOB_STDOUT", ""),
                stderr=env.get("SLURM_JOB_STDERR", ""),
                exit_status=int(env["SLURM_JOB_EXIT_CODE"]) if "SLURM_JOB_EXIT_CODE" in env else None,
                derived_exit=int(env.get("SLURM_JOB_DERIVED_EC", "0")),
                node=env.get("SLURMD_NODENAME", ""),
                several_nodes=bool(re.search(r"[\[,]", env.get("SLURM_NODELIST", ""))),
            )
        except (KeyError, ValueError) as exc:
            raise SlurmError(f"not the environment of a Slurm hook: {exc!r:.200}") from exc


def owner_in(env: Mapping[str, str]) -> dict[int, int]:
    """Return the user of a hook's job, by job id; nothing outside a hook.

    >>> owner_in({"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "2002"}), owner_in({})
    ({7: 2002}, {})
    """
    job, user = env.get("SLURM_JOB_ID", ""), env.get("SLURM_JOB_UID", "")
    return {int(job): int(user)} if job.isdecimal() and user.isdecimal() else {}


def parse_indices(text: str) -> tuple[int, ...]:
    """Return the numbers of a list in Slurm's format.

    Raises:
        ValueError: The text is not such a list.

    >>> parse_indices("0,2-4"), parse_indices("")
    ((0, 2, 3, 4), ())
    """
    found: list[int] = []
    for part in filter(None, text.split(",")):
        match = _INDEX_RANGE.match(part)
        if match is None:
            raise ValueError(f"{text!r} is no list of GPU indices")
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        found.extend(range(first, last + 1))
    return tuple(found)
