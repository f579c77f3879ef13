"""`rad calibrate --deep`: measure a GPU part by part and write the site's table of rules.

The measuring programs (gpumemnet/calibration) run in a Python that has torch, each part in a separate process;
gpumemnet/fit turns their results into rows. A part that fails costs only its rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from gpumemnet.calibration.fit.parts import PARTS, MeasuredPart
from gpumemnet.calibration.fit.site_table import Table, merged, rows
from gpumemnet.calibration.fit.site_table import as_text as table_text
from gpumemnet.errors import GpuMemNetError
from gpumemnet.gpu_memory.rules.numbers import of, read_site_table
from slurm_plugin.admin.calibrate.base import PROGRAMS, run_program
from slurm_plugin.core.errors import EstimateError
from slurm_plugin.core.files.atomic import replace_file

COMMAND = "rad calibrate --deep"


def plan(out: Path) -> str:
    """Return what would be measured, and how long it takes."""
    lines = [f"{part.name:<16}{part.takes_s:>4} s  {part.measures}" for part in PARTS]
    return "\n".join(
        [*lines, f"{'together':<16}{sum(part.takes_s for part in PARTS):>4} s  then {out} is written"]
    )


def measure(
    python: str,
    env: Mapping[str, str],
    *,
    out: Path,
    today: date,
    progress: Callable[[str], None],
    programs: Path = PROGRAMS,
) -> Table:
    """Measure all parts on the GPU that this process would get, and write the table.

    Args:
        python: A Python that has torch, as jobs use it.
        env: Its environment.
        out: The site's table; rows for other GPUs in it stay.
        today: Date for the column on how a number was found.
        progress: Called with a line on the progress.
        programs: Folder of the measuring programs.

    Returns:
        The fitted table.

    Raises:
        EstimateError: The GPU reports nothing, or the table cannot be read or written, which is tried first.
    """
    if not os.access(out.parent, os.W_OK):
        raise EstimateError(
            f"{out.parent}: no such folder, or it may not be written; name another with --out"
        )
    try:
        old = read_site_table(out)
        seen = dict[str, Mapping[str, Any]]()
        for part in PARTS:
            _measure(part, seen, python, env, programs, progress)
        table = rows(seen, found_by=f"{COMMAND}, {today.isoformat()}")
        replace_file(out, table_text(merged(old, table.rules)).encode())
    except (GpuMemNetError, OSError) as exc:
        raise EstimateError(str(exc)) from exc
    return table


def _measure(
    part: MeasuredPart,
    seen: dict[str, Mapping[str, Any]],
    python: str,
    env: Mapping[str, str],
    programs: Path,
    progress: Callable[[str], None],
) -> None:
    """Run one part and add its results; a part that fails is reported and skipped, except the first."""
    progress(f"{part.name}: {part.measures}, about {part.takes_s} s")
    try:
        seen[part.name] = run_program(python, programs / part.program, *part.arguments, env=env)
    except EstimateError as exc:
        if part is PARTS[0]:
            raise
        progress(f"{part.name}: left out: {exc}")


def as_text(table: Table, out: Path) -> str:
    """Return the results next to the values in use so far.

    Args:
        table: The fitted table.
        out: Its path.
    """
    lines = [
        f"{rule.library:<12}{rule.name:<26}{rule.value:>14}  (was {of(rule.library, rule.gpu)[rule.name]})"
        for rule in table.rules
    ]
    lines += [f"note: {note}" for note in table.notes]
    return "\n".join(
        [*lines, f"{len(table.rules)} numbers are in {out}; restart radd, and copy it to login nodes"]
    )
