"""Options of a submission as sbatch reads them: typed, in SBATCH_* variables, in #SBATCH lines; the first counts.

Source: sbatch(1), INPUT ENVIRONMENT VARIABLES and OPTIONS; abbreviations and order as in getopt_long(3). Tested with
22.05.8, 24.11.5 and 26.05.5.
"""

from __future__ import annotations

import getopt
import shlex
from collections.abc import Mapping, Sequence

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.submission import foreign_lines

MARKS = ("#SBATCH", "#SLURM")
_VARIABLES = {
    "SBATCH_PARTITION": "partition",
    "SBATCH_GRES": "gres",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GPUS_PER_SOCKET": "gpus-per-socket",
    "SBATCH_GPU_BIND": "gpu-bind",
    "SBATCH_GPU_FREQ": "gpu-freq",
    "SBATCH_CPUS_PER_GPU": "cpus-per-gpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_TRES_BIND": "tres-bind",
    "SBATCH_TRES_PER_TASK": "tres-per-task",
    "SBATCH_CONTAINER": "container",
    "SBATCH_CONSTRAINT": "constraint",
}
"""Those that RAD's decisions depend on."""
_WITH_VALUE = """
    account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container
    container-id core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency
    distribution error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus
    gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep
    licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile
    nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output
    partition power prefer priority profile qos reservation segment signal sockets-per-node switches
    thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap
"""
_FLAGS = """
    contiguous help hold ignore-pbs no-requeue overcommit oversubscribe parsable quiet reboot requeue share spread-job
    stepmgr test-only usage use-min-nodes verbose version wait
"""
_MAYBE_VALUE = ("exclusive", "get-user-env", "nice", "no-kill", "propagate", "resv-ports")
"""Options with an optional value, given only after `=`."""
_SHORT = {
    "A": "account", "a": "array", "b": "begin", "B": "extra-node-info", "c": "cpus-per-task", "C": "constraint",
    "d": "dependency", "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "i": "input", "J": "job-name",
    "L": "licenses", "m": "distribution", "M": "clusters", "n": "ntasks", "N": "nodes", "o": "output", "p": "partition",
    "q": "qos", "S": "core-spec", "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_SHORT_FLAGS = "hHkOQsvVW"
_HETEROGENEOUS = ("hetjob", "packjob")
_ALIASES = {"tasks-per-node": "ntasks-per-node"}


def options_of(script: str | None, typed: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a submission by their long name, without dashes; a flag has the value "".

    Args:
        script: The job script; None for a command line without one.
        typed: The words after `sbatch`.
        env: Environment with the SBATCH_* variables.

    Returns:
        The options; "hetjob" among them if the script has several components.

    Raises:
        SlurmError: sbatch has no such option, or an option lacks its value.
    """
    given = _parsed(typed)
    found = {} if script is None else _of_script(script)
    if script is not None and not ({"ignore-pbs"} & {*given, *found} or "SBATCH_IGNORE_PBS" in env):
        found |= _of_foreign_lines(script)
    found |= {name: env[variable] for variable, name in _VARIABLES.items() if env.get(variable)}
    if "SBATCH_EXCLUSIVE" in env:  # counts without a value, too
        found["exclusive"] = env["SBATCH_EXCLUSIVE"]
    return found | given


def _of_foreign_lines(script: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in script.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        found |= foreign_lines.options_in(line)
    return found


def _of_script(script: str) -> dict[str, str]:
    """Return the options of the #SBATCH lines above the first command; a backslash at a line's end has no effect."""
    found: dict[str, str] = {}
    for number, line in enumerate(script.split("\n"), start=1):
        mark = next((each for each in MARKS if line.startswith(each)), None)
        if mark is None:
            if line.strip() and not line.lstrip().startswith("#"):
                break
            continue
        try:
            words = shlex.split(line[len(mark) :].rstrip().removesuffix("\\"), comments=True)
        except ValueError as exc:
            raise SlurmError(f"line {number}: {mark}: {str(exc).lower()}; close the quote") from exc
        if words and words[0] in _HETEROGENEOUS:
            return found | {"hetjob": ""}
        try:
            found |= _parsed(words)
        except SlurmError as exc:
            raise SlurmError(f"line {number}: {mark}: {exc}") from exc
    return found


def _parsed(words: Sequence[str]) -> dict[str, str]:
    """Return the options among some words; words after the name of a script belong to the script."""
    plain = [word for word in words if not _has_maybe_value(word)]
    long = [*(f"{name}=" for name in (*_WITH_VALUE.split(), *_ALIASES)), *_FLAGS.split(), *_MAYBE_VALUE]
    short = "".join(f"{letter}:" for letter in _SHORT) + _SHORT_FLAGS
    try:
        pairs, _ = getopt.getopt(plain, short, long)
    except getopt.GetoptError as exc:
        raise SlurmError(f"sbatch: {exc}") from exc
    names = _SHORT | _ALIASES
    return {names.get(name.lstrip("-"), name.lstrip("-")): value for name, value in pairs}


def _has_maybe_value(word: str) -> bool:
    return any(word.startswith(f"--{name}=") for name in _MAYBE_VALUE)
