"""`python -m gpumemnet.train`: train every shipped estimator on our own measurements and write the weights."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np

from gpumemnet.dataset.store import TRAINING_ROWS
from gpumemnet.errors import GpuMemNetError
from gpumemnet.estimators.tree_model import WEIGHTS
from gpumemnet.train import boosted, correction
from gpumemnet.train.export import trees_of, write
from gpumemnet.train.rows import GPU, Row, file_hash, load_rows, matrix

CLASSIFIERS_READ = "torchinfo"
"""One text per run: the same run twice teaches a classifier nothing new."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--data", default=TRAINING_ROWS, show_default=True, type=click.Path(path_type=Path), help="Rows."
)
@click.option(
    "--texts",
    default=Path(".rad/texts.jsonl"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where summary texts made from the rows are kept.",
)
@click.option(
    "--out", default=WEIGHTS, show_default=True, type=click.Path(path_type=Path), help="Weights folder."
)
@click.option("--trees/--no-trees", default=True, help="Train ours and plain boosting.")
@click.option("--networks/--no-networks", default=True, help="Train the thesis' two networks (many minutes).")
def main(data: Path, texts: Path, out: Path, trees: bool, networks: bool) -> None:
    """Train on measured rows; seeds are fixed, so the same rows give the same weights."""
    digest = file_hash(data)
    texts.parent.mkdir(parents=True, exist_ok=True)
    rows = load_rows(data, texts)
    click.echo(f"{data.name}: sha256 {digest}, {len({row.run for row in rows})} runs, {len(rows)} texts")
    if trees:
        _train_trees(rows, digest, out)
    if networks:
        _train_classifiers([row for row in rows if row.text_format == CLASSIFIERS_READ], digest, out)


def _train_trees(rows: list[Row], digest: str, out: Path) -> None:
    samples = correction.samples(rows, matrix(rows), GPU)
    learned = correction.learn(samples)
    constants = {"smooth_mib": correction.SMOOTH_MIB, "shrink": correction.SHRINK, **learned.margins}
    trees = {"correction": trees_of(learned.correction), "width": trees_of(learned.width)}
    write(
        out / "ours.json.z",
        data_sha256=digest,
        constants=constants,
        trees=trees,
        calibration=learned.calibration,
    )
    best, upper = correction.estimates(samples, learned.held_out, learned.held_out_width)
    error = np.abs(best - samples.peak_mib) / samples.peak_mib
    choices = [("all", np.ones(len(rows), bool))]
    for name in sorted({row.text_format for row in rows}):
        of_format = np.array([row.text_format == name for row in rows])
        choices += [
            (f"{name}, generated", of_format & ~samples.real),
            (f"{name}, real", of_format & samples.real),
        ]
    for name, chosen in choices:
        if not chosen.any():
            continue
        click.echo(
            f"ours, unseen families, {name}: median {100 * np.median(error[chosen]):.1f} %,"
            f" P95 {100 * np.quantile(error[chosen], 0.95):.1f} %,"
            f" above bound {100 * (samples.peak_mib > upper)[chosen].mean():.2f} %,"
            f" bound/actual {np.mean((upper / samples.peak_mib)[chosen]):.2f}"
        )
    need, width = boosted.learn(samples)
    write(out / "boosted.json.z", data_sha256=digest, constants={"width": width}, trees={"need": need})
    click.echo(f"boosted: bound {np.exp(width):.2f} times the estimate")


def _train_classifiers(rows: list[Row], digest: str, out: Path) -> None:
    from gpumemnet.estimators.transformer import series
    from gpumemnet.texts.formats.detect import parse_text
    from gpumemnet.train.classifiers import mlp_ensembles, transformers

    found = mlp_ensembles(rows)
    write(out / "mlp_ensemble.json.z", data_sha256=digest, constants={}, trees={}, networks=found)
    click.echo("mlp_ensemble: written")
    layers = np.array([series(parse_text(row.text, path=row.name), row.profile.batch_size) for row in rows])
    found = transformers(rows, layers)
    write(out / "transformer.json.z", data_sha256=digest, constants={}, trees={}, networks=found)
    click.echo("transformer: written")


if __name__ == "__main__":
    try:
        main()
    except GpuMemNetError as error:
        sys.exit(f"{error}")
