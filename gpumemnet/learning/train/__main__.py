"""`python -m gpumemnet.learning.train`: train every shipped estimator on RAD's measurements and write the weights."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np

from gpumemnet.errors import GpuMemNetError
from gpumemnet.estimators import conformal
from gpumemnet.estimators.tree_model import WEIGHTS
from gpumemnet.learning.dataset.store import TRACED_ROWS, TRAINING_ROWS
from gpumemnet.learning.train import boosted, correction
from gpumemnet.learning.train.export import trees_of, write
from gpumemnet.learning.train.rows import GPU, TrainingRow, file_hash, load_rows, matrix, traced_rows

PROGRESS = (0.8, 0.9, 0.95, 0.99)
"""Quantiles whose misses are printed, with booked over actual."""
CLASSIFIERS_READ = "torchinfo"
"""One text per run: a second text of a run adds nothing for a classifier."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--data", default=TRAINING_ROWS, show_default=True, type=click.Path(path_type=Path), help="Rows."
)
@click.option(
    "--traced",
    default=TRACED_ROWS,
    show_default=True,
    type=click.Path(path_type=Path),
    help="Families that were traced: they calibrate texts of all levels, and teach nothing.",
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
@click.option("--networks/--no-networks", default=True, help="Train the thesis' two networks (many minutes).")
def main(data: Path, traced: Path, texts: Path, out: Path, networks: bool) -> None:
    """Train on measured rows; seeds are fixed, so the same rows give the same weights."""
    digest = file_hash(data)
    texts.parent.mkdir(parents=True, exist_ok=True)
    rows = load_rows(data, texts, default_depth=True)
    click.echo(f"{data.name}: sha256 {digest}, {len({row.run for row in rows})} runs, {len(rows)} texts")
    families = traced_rows(traced, first_run=max((row.run for row in rows), default=-1) + 1)
    click.echo(f"{traced.name}: sha256 {file_hash(traced)}, {len(families)} texts")
    _train_trees([*rows, *families], len(rows), digest, out)
    if networks:
        _train_classifiers([row for row in rows if row.text_format == CLASSIFIERS_READ], digest, out)


def _train_trees(rows: list[TrainingRow], measured: int, digest: str, out: Path) -> None:
    """Train on rows, the first of which are measured; plain boosting uses only those."""
    samples = correction.samples(rows, matrix(rows), GPU)
    learned = correction.learn(samples)
    write(
        out / "rad.json.z",
        data_sha256=digest,
        constants={"smooth_mib": correction.SMOOTH_MIB, **correction.SHARES},
        trees={"correction": trees_of(learned.correction)},
        quantiles=learned.quantiles,
        calibrated_on={"runs": len({row.run for row in rows}), "texts": len(rows)},
    )
    _print(samples, learned)
    need, width = boosted.learn(correction.samples(rows[:measured], matrix(rows[:measured]), GPU))
    write(out / "boosted.json.z", data_sha256=digest, constants={"width": width}, trees={"need": need})
    click.echo(f"boosted: bound {np.exp(width):.2f} times the estimate")


def _print(samples: correction.RowArrays, learned: correction.Correction) -> None:
    """Print the errors of each kind of text on held-out groups, and how often quantiles are exceeded."""
    best = correction.estimates(samples, learned.held_out)
    error = np.abs(best - samples.peak_mib) / samples.peak_mib
    kinds = np.array(samples.kind)
    for kind in sorted(set(samples.kind)):
        for name, chosen in (
            ("generated", ~samples.real),
            ("real", samples.real & samples.measured),
            ("traced", ~samples.measured),
        ):
            mask = (kinds == kind) & chosen
            if not mask.any():
                continue
            peak = samples.peak_mib[mask]
            lines = [
                f"median {100 * np.median(error[mask]):.1f} %, P95 {100 * np.quantile(error[mask], 0.95):.1f} %"
            ]
            for share in PROGRESS:
                width = learned.held_out_widths[:, conformal.LEVELS.index(share)]
                booked = correction.estimates(samples, learned.held_out, width)[mask]
                above, ratio = 100 * (peak > booked).mean(), (booked / peak).mean()
                lines.append(f"{above:.1f} % above the {share:.0%} quantile ({ratio:.2f})")
            click.echo(f"{kind}, {name}, {mask.sum()} texts: {', '.join(lines)}")


def _train_classifiers(rows: list[TrainingRow], digest: str, out: Path) -> None:
    from gpumemnet.estimators.transformer import series
    from gpumemnet.learning.train.classifiers import mlp_ensembles, transformers
    from gpumemnet.summaries.texts.formats.detect import parse_text

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
