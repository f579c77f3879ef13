"""Exit statuses of RAD's commands, and of its hooks because of what Slurm does for each.

Source: https://slurm.schedmd.com/prolog_epilog.html, "Failure Handling".

| hook | non-zero status means |
|---|---|
| Prolog (slurmd) | the node is DRAINED, the job is requeued and held |
| Epilog (slurmd) | the node is DRAINED |
| TaskProlog | the task is cancelled |
| EpilogSlurmctld | logged only |

A fault of RAD must neither harm a job nor drain a node, so Prolog and Epilog always return OK; a job that may not start
is requeued through the controller instead. Only TaskProlog may refuse, when the job was requeued meanwhile.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses of the project's commands."""

    OK = 0
    FINDINGS = 1
    """Something is wrong with the site, and a line says what; entry_point.py distinguishes the four."""
    USAGE = 2
    """The caller's input is wrong; one line on stderr says file, line and fix."""
    BUG = 3
    """An unexpected exception; its traceback went to a file that one line names."""

    REFUSED = 1
    """A TaskProlog that does not let its job start."""
