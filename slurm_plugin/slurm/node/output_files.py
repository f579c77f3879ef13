"""Paths of a job's output: the names that Slurm derives from patterns.

Source: sbatch(1), "filename pattern", and _fname_format in Slurm's src/api/job_info.c. Slurm 22.05 passes an Epilog
neither array ids nor the job's name: where they matter, Slurm is queried, for failed jobs only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.node.hook_env import HookJob

if TYPE_CHECKING:
    from slurm_plugin.slurm.commands import SlurmCommands

_FROM_SLURM = ("x", "a")
"""Codes with a meaning, even where their value was not passed to the hook."""

_NAMED = re.compile(r"%\d{0,2}[xAab]")

_OF_ONE_JOB = (("%j",), ("%J",), ("%A", "%a"))
"""Codes that make a name unique to the job."""

_CODE = re.compile(r"%(\d{0,2})(.)")


def names_matter(job: HookJob) -> bool:
    """Return whether the path of a job's output depends on its name or array ids; it does if it named no file."""
    return not job.stdout or any(_NAMED.search(pattern) for pattern in (job.stdout, job.stderr))


def names_of(job: HookJob, slurm: Callable[[], SlurmCommands]) -> Mapping[str, str]:
    """Return the values of %x, %A and %a in a job's output paths; empty if they have none, or Slurm does not answer.

    Args:
        job: The job.
        slurm: Opens Slurm; called only if the paths need it.
    """
    try:
        return slurm().names(job.job_id) if names_matter(job) else {}
    except SlurmError:
        return {}


def may_hold_old_text(job: HookJob) -> bool:
    """Return whether the job's output may go to a file that an earlier run, or another job, wrote to."""
    return job.restart > 0 or any(
        pattern and not any(all(code in pattern for code in codes) for codes in _OF_ONE_JOB)
        for pattern in (job.stdout, job.stderr)
    )


def expected_outputs(job: HookJob, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the absolute paths of stdout and stderr, as far as they are known.

    Args:
        job: The job.
        names: Values of %x, %A and %a, as far as known.
    """
    default = "slurm-%A_%a.out" if "a" in names else "slurm-%j.out"
    patterns = dict.fromkeys((job.stdout or default, job.stderr or job.stdout or default))
    paths = (expand(pattern, job, names) for pattern in patterns)
    return tuple(path for path in paths if path is not None and not path.startswith("/dev/"))


def expand(pattern: str, job: HookJob, names: Mapping[str, str]) -> str | None:
    r"""Return the path that a pattern stands for; None if it needs values that are not known here.

    A width pads with zeros (`%5j`), and a backslash anywhere keeps the whole pattern unchanged. A percent sign before
    any other letter stays: the folder's name is part of what Slurm passes, and may be `100% mine`.

    Args:
        pattern: As the user wrote it after --output: `%x-%j.out`.
        job: The job, as slurmd passes it to its hooks.
        names: Values queried from Slurm, by letter of the pattern: the job's name and array ids.
    """
    known = {
        **dict.fromkeys(_FROM_SLURM),
        "%": "%",
        "A": str(job.job_id),  # for a job that is not an array
        "b": str(int(names["a"]) % 10) if names.get("a", "").isdigit() else None,
        "j": str(job.job_id),
        "J": str(job.job_id),
        "N": job.node.partition(".")[0],
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": job.user_name,
        **names,
    }
    if "\\" in pattern:
        name = pattern.replace("\\", "")
    else:
        if any(known.get(match[2], "") is None for match in _CODE.finditer(pattern)):
            return None
        name = _CODE.sub(
            lambda match: _padded(known[match[2]] or "", match[1]) if match[2] in known else match[0], pattern
        )
    path = PurePosixPath(job.work_dir or "/", name)
    return str(path) if path.is_absolute() else None


def _padded(value: str, width: str) -> str:
    return value.zfill(min(int(width), 10)) if width and value.isdigit() else value
