"""A finished job's AdminComment: Slurm's controller no longer changes it, its database does.

`scontrol update` answers "Job has already finished" from the moment a job is COMPLETING (22.05 to 26.05), so what an
Epilog learns goes to slurmdbd (sacctmgr(1), "modify job").
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.core.errors import CommandError, SlurmError
from slurm_plugin.core.shell import spawn_daemon


def write_admin_comment(job_id: int, text: str, *, env: Mapping[str, str], log_path: Path) -> None:
    """Start sacctmgr and return at once: a hook holds its node while it runs, and nobody waits for this.

    Args:
        job_id: The job.
        text: Its new AdminComment.
        env: Environment for sacctmgr; SLURM_CONF where slurm.conf is not where Slurm looks.
        log_path: Where its complaints go.

    Raises:
        SlurmError: sacctmgr could not be started.
    """
    argv = ["sacctmgr", "-iQ", "modify", "job", "where", f"jobid={job_id}", "set", f"AdminComment={text}"]
    try:
        spawn_daemon(argv, env=env, log_path=log_path, uid=0, gid=0)
    except (CommandError, OSError) as exc:
        raise SlurmError(f"job {job_id}: AdminComment not written: {exc}") from exc
