"""Ask Slurm what it would do with a job: `sbatch --test-only`, which submits nothing.

It passes through cli_filter, job_submit and so radd, which knows earlier runs of the same job, and slurmctld reports
when the job would start under the present load (sbatch(1)).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpumemnet.records import frozen
from slurm_plugin.core.errors import CommandError, SlurmError
from slurm_plugin.core.process.run import find_program, run

TIMEOUT_S = 30.0
"""Time limit: sbatch waits for a busy controller."""
_START = re.compile(r"Job \d+ to start at (\S+)")


@frozen
class Tried:
    """Slurm's answer.

    Attributes:
        lines: All lines, without the program's name in front.
        starts: When the job would start, as Slurm writes it (local time); None if it was refused.
    """

    lines: tuple[str, ...]
    starts: str | None


def try_submission(words: Sequence[str], *, env: Mapping[str, str], script: str | None = None) -> Tried:
    """Run `sbatch --test-only`.

    Args:
        words: Options, and the path of the job script.
        env: The user's environment: SBATCH_* variables count, and SLURM_CONF.
        script: A job script for standard input; None if `words` names one.

    Raises:
        SlurmError: There is no sbatch here, or slurmctld does not answer.
    """
    try:
        program = find_program("sbatch", folders=env.get("PATH", "").split(":"))
    except CommandError as exc:
        raise SlurmError("there is no sbatch on this machine; run this on a login node") from exc
    argv = (program, "--test-only", *words)
    try:  # Slurm answers on standard error, whether it accepts the job or not
        text, refused = run(argv, timeout_s=TIMEOUT_S, env=env, stdin=script, with_errors=True), False
    except CommandError as exc:
        if exc.returncode is None or "Unable to contact slurm controller" in exc.output:
            raise SlurmError("slurmctld does not answer") from exc
        text, refused = exc.output, True
    lines = tuple(line.removeprefix("sbatch: ") for line in text.splitlines() if line.strip())
    start = _START.search(text)
    return Tried(lines=lines, starts=None if refused or start is None else start.group(1))
