"""What a hook's exit status makes Slurm do, and what we therefore return.

Source: https://slurm.schedmd.com/prolog_epilog.html, "Failure Handling".

| hook | non-zero status means |
|---|---|
| Prolog (slurmd) | the node is DRAINED, the job is requeued and held |
| Epilog (slurmd) | the node is DRAINED |
| TaskProlog | the task is cancelled |
| EpilogSlurmctld | logged only |

A fault of ours must neither hurt a job nor drain a node, so Prolog and Epilog always return OK; a job that may not
start is put back through the controller instead. TaskProlog alone may refuse, when the job was put back meanwhile.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses of the project's commands."""

    OK = 0
    FINDINGS = 1
    """Something is wrong with the site, and a line says what; program_end.py tells the four apart."""
    USAGE = 2
    """The caller's input is wrong; one line on stderr says file, line and fix."""
    BUG = 3
    """An unexpected exception; its traceback went to a file that one line names."""

    REFUSED = 1
    """A TaskProlog that does not let its job start."""
