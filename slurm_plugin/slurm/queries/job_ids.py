"""Job ids as squeue shows them: a number, or the task of an array (`11_3`), which has a number of its own."""

from __future__ import annotations

import re

from slurm_plugin.core.errors import ConfigError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.queries.accounting import sacct
from slurm_plugin.slurm.queries.columns import Columns, cut, number

_TASK = re.compile(r"[1-9][0-9]{0,9}_[0-9]{1,9}", re.ASCII)
_PLAIN = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
_SQUEUE: Columns = (("JobID", 20), ("JobArrayID", 64))
_SACCT: Columns = (("JobIDRaw", 20), ("JobID", 64))
_ANSWER_S = 10.0


def check_job_id(text: str) -> None:
    """Check that a text has the form of a job id.

    Raises:
        ConfigError: It has another.
    """
    if not _PLAIN.fullmatch(text) and not _TASK.fullmatch(text):
        raise ConfigError(f"{text!r:.80} is no job id; give a number, or ARRAY_TASK for the task of an array")


def job_id_of(text: str, *, slurm_conf: str = "", accounts: bool) -> int:
    """Return the number of a job; a task of an array is looked up, in squeue, then in sacct.

    Args:
        text: As squeue shows it.
        slurm_conf: Path for SLURM_CONF; "" lets the commands find it.
        accounts: Whether there is slurmdbd to ask about tasks that slurmctld forgot.

    Raises:
        ConfigError: It is no job id, or Slurm does not know the task.
        SlurmError: A command failed or did not answer.
    """
    check_job_id(text)
    if _PLAIN.fullmatch(text):
        return int(text)
    slurm = SlurmCommands(slurm_conf=slurm_conf, timeout_s=_ANSWER_S)
    rows = slurm.squeue(_SQUEUE, "-t", "all", "-j", text)
    found = [row["JobID"] for row in rows if row["JobArrayID"] == text]
    if not found and accounts:
        table = sacct(_SACCT, "-j", text, slurm_conf=slurm_conf, timeout_s=_ANSWER_S)
        found = [row["JobIDRaw"] for row in cut(table, _SACCT, gap=1) if row["JobID"] == text]
    if not found:
        raise ConfigError(
            f"Slurm does not know task {text}; one that waits with others has the array's id, "
            f"{text.partition('_')[0]}"
        )
    return number(found[-1])
