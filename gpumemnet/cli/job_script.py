"""Tell job scripts from other texts, and which of them sbatch refuses whatever they ask for (sbatch(1))."""

from __future__ import annotations

import shlex

_MARKS = ("#RAD", "#SBATCH", "#!")


def is_job_script(text: str) -> bool:
    r"""Return whether a text is a job script: it starts with #!, or was meant to; a log may show #SBATCH lines, too.

    Args:
        text: The text.

    >>> is_job_script("#!/bin/sh\ntrue"), is_job_script("# mine\n#SBATCH -n1"), is_job_script("a log\n#SBATCH -n1")
    (True, True, False)
    """
    if text.startswith("#!"):
        return True
    for line in text.splitlines():
        if line.startswith(_MARKS):
            return True
        if line.strip() and not line.lstrip().startswith("#"):
            return False
    return False


def why_refused(text: str, path: str | None) -> str | None:
    """Return why sbatch takes no job from a script, and what to do; None if it may.

    Args:
        text: The whole script.
        path: The script, for the fix; None for standard input.
    """
    if not text.startswith("#!"):
        return "line 1 does not start with #!, so sbatch refuses the script; make #!/bin/bash its first line"
    if "\r\n" in text:
        name = "FILE" if path is None else shlex.quote(path)
        return f"it has DOS line breaks, so sbatch refuses it; remove them: sed -i 's/\\r$//' {name}"
    return None
