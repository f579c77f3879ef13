"""`python -m gpumemnet.learning.evaluate`: print tables of docs/measurements: summaries, published data."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gpumemnet.errors import GpuMemNetError
from gpumemnet.learning.dataset.store import HELDOUT_ROWS
from gpumemnet.learning.train.rows import file_hash, load_rows

_DATA = click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder with the files that GPUMemNet's authors published.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Print every estimator's figures."""


@main.command()
@click.option(
    "--rows", default=HELDOUT_ROWS, show_default=True, type=click.Path(path_type=Path), help="Runs."
)
@click.option(
    "--plots", type=click.Path(path_type=Path), help="Folder for the plots; none are drawn without it."
)
@click.option("--others/--no-others", default=True, help="Run the other estimators too (minutes).")
def heldout(rows: Path, plots: Path | None, others: bool) -> None:
    """Score on real models that no row was made from (H200)."""
    from gpumemnet.learning.evaluate.heldout import MAIN_FORMAT, all_answers
    from gpumemnet.learning.evaluate.heldout_tables import bookings, by_source, table

    found = all_answers(load_rows(rows), rows, others=others)
    main_answers = next(answers for answers in found if answers.estimator == f"rad, {MAIN_FORMAT}")
    tables = (table(found), bookings(found), by_source(main_answers))
    click.echo("\n\n".join((f"{rows.name}: sha256 {file_hash(rows)}", *tables)))
    if plots is not None:
        from gpumemnet.learning.evaluate.plots import draw

        for path in draw(found, plots):
            click.echo(f"{path}")


@main.command()
@_DATA
@click.option("--networks/--no-networks", default=True, help="Train the thesis' two networks too (minutes).")
def peers(data: Path, networks: bool) -> None:
    """Score on GPUMemNet's own data."""
    from gpumemnet.learning.evaluate.peers import tables

    click.echo(tables(data, networks=networks))


@main.command()
@_DATA
def real(data: Path) -> None:
    """Score on the thesis' eighteen unseen real models (A100)."""
    from gpumemnet.learning.evaluate.real_models import table

    click.echo(table(data))


if __name__ == "__main__":
    try:
        main()
    except GpuMemNetError as error:
        sys.exit(f"{error}")
