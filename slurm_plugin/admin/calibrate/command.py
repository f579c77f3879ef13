"""`rad calibrate`: measure an idle GPU."""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timezone
from pathlib import Path

import click

from gpumemnet.gpu_memory.rules.numbers import SITE_TABLE
from slurm_plugin.admin.options import Command


@click.command(cls=Command)
@click.option("--python", default="python3", show_default=True, help="A Python with PyTorch, as jobs use it.")
@click.option("--deep", is_flag=True, help="Fit a rule table for this GPU; takes several minutes.")
@click.option(
    "--out",
    default=str(SITE_TABLE),
    show_default=True,
    type=click.Path(path_type=Path),
    help="With --deep: the site's rule table; rows of other GPUs are kept.",
)
@click.option(
    "--dry-run", is_flag=True, help="With --deep: print what would be measured, and how long it takes."
)
def calibrate(python: str, deep: bool, out: Path, dry_run: bool) -> None:
    """Measure the memory that a PyTorch process uses apart from its tensors; run it on an idle GPU."""
    from slurm_plugin.admin.calibrate import base as calibrating
    from slurm_plugin.admin.calibrate import rules

    found = shutil.which(python) or python
    if dry_run and not deep:
        raise click.UsageError("--dry-run goes with --deep; without it nothing is written")
    if deep and dry_run:
        click.echo(rules.plan(out))
    elif deep:
        today = datetime.now(timezone.utc).date()
        table = rules.measure(
            found, os.environ, out=out, today=today, progress=lambda line: click.echo(line, err=True)
        )
        click.echo(rules.as_text(table, out))
    else:
        click.echo(calibrating.as_text(calibrating.measure(found, os.environ)))
