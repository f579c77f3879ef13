"""Run rad-estimate; print each error as one line and return the exit status."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence

from gpumemnet.cli.invocation import PROGRAM, EstimateExit, FindCluster, Invocation
from gpumemnet.cli.plain_words import values_of
from gpumemnet.cli.terminal import complain
from gpumemnet.errors import GpuMemNetError, lines_of

_STARTS = r"(?:.*/)?(?:python[\d.]*|torchrun|accelerate|deepspeed|mpirun|srun|uv|poetry)$|.*\.py$"
"""A word with which a command that trains begins."""


def main(find_cluster: FindCluster = lambda given: None) -> None:
    """Run the command; every error is one line on stderr and an exit status of the table in rad_estimate.py."""
    own, script = _split(sys.argv[1:])
    invocation = Invocation(script=script, find_cluster=find_cluster)
    try:
        values = None if script else values_of(own)
        if values is None:
            _with_click(own, invocation)
        else:
            # Imported here: a call that click answers, such as --help, may not need it.
            from gpumemnet.cli import run

            sys.exit(run.run(invocation, **values))
    except GpuMemNetError as exc:
        _fail(EstimateExit.USAGE, *lines_of(exc))
    except KeyboardInterrupt:
        sys.exit(EstimateExit.FINDINGS)
    except BrokenPipeError:  # the reader of the output stopped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EstimateExit.FINDINGS)
    except Exception as exc:  # noqa: BLE001 - last resort: a bug is reported in one line, too
        from gpumemnet.cli import bug_log  # only a bug needs it

        where = bug_log.keep(PROGRAM, sys.argv[1:], exc)
        _fail(EstimateExit.BUG, f"internal error, please report it: {type(exc).__name__}: {exc}; {where}")


def _with_click(own: Sequence[str], invocation: Invocation) -> None:
    """Let click read the words, and answer."""
    import click  # takes longer than an estimate

    from gpumemnet.cli.rad_estimate import command

    try:
        command(list(own), prog_name=PROGRAM, standalone_mode=False, obj=invocation)
    except click.ClickException as exc:
        at = next((at for at, word in enumerate(own) if re.match(_STARTS, word)), None)
        fix = f"see {PROGRAM} --help"
        if at is not None:
            fix = f"write -- before the command: {shlex.join([PROGRAM, *own[:at], '--', *own[at:]])}"
        _fail(EstimateExit.USAGE, f"{exc.format_message()}; {fix}")
    except click.Abort:
        sys.exit(EstimateExit.FINDINGS)


def _split(words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return rad-estimate's words, and those of the script after `--`."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], tuple(words[at + 1 :])


def _fail(status: EstimateExit, *lines: str) -> None:
    """Report an error on stderr, and also as JSON on stdout if requested; exit."""
    shown = [" ".join(line.split()) for line in lines]
    if "--json" in _split(sys.argv[1:])[0]:
        import json  # only this form needs it

        print(json.dumps({"version": 1, "error": {"status": int(status), "lines": shown}}), flush=True)
    complain(*shown)
    sys.exit(status)
