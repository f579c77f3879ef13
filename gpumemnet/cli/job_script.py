"""Tell job scripts from other texts, and which of them sbatch refuses whatever they ask for (sbatch(1))."""

from __future__ import annotations

import codecs
import shlex

_MARKS = ("#RAD", "#SBATCH", "#!")


def is_job_script(text: str) -> bool:
    r"""Return whether a text is a job script: it starts with #!, or was meant to; a log may show #SBATCH lines, too.

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


def why_refused(data: bytes, path: str | None) -> str | None:
    """Return why sbatch takes no job from a job script, and what to do; None if it may.

    The bytes count, in the order of _get_script_buffer() in Slurm's src/sbatch/sbatch.c: #!, NUL, DOS line breaks.

    Args:
        data: The whole job script.
        path: The job script, for the fix; None for standard input.
    """
    name, refuses = "FILE" if path is None else shlex.quote(path), "so sbatch refuses the job script"
    if data.startswith(codecs.BOM_UTF8):
        return f"a byte order mark is before #!, {refuses}; remove it: sed -i '1s/^\\xEF\\xBB\\xBF//' {name}"
    if b"\0" in data[:4]:
        return f"it is in UTF-16, {refuses}; save it as UTF-8 without a byte order mark"
    if not data.startswith(b"#!"):
        return f"line 1 does not start with #!, {refuses}; make #!/bin/bash its first line"
    if b"\0" in data:
        return f"it has NUL bytes, {refuses}; remove them: sed -i 's/\\x00//g' {name}"
    if b"\r\n" in data:
        return f"it has DOS line breaks, {refuses}; remove them: sed -i 's/\\r$//' {name}"
    return None
