"""Fit the activity estimator to measured trainings, and evaluate it on held-out lineages.

    python -m gpumemnet.learning.train.activity [--remake]

Ridge regression with weights that reduce the effect of outliers (iteratively reweighted least squares towards absolute
errors). Rows of one random model, or of one real name, are never on both sides of a fold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import click
import numpy as np

from gpumemnet.errors import SummaryError
from gpumemnet.estimators import activity
from gpumemnet.learning.dataset.store import DATA, Record, read_records, write_records
from gpumemnet.learning.train.arrays import Floats
from gpumemnet.learning.train.rows import file_hash, folds, profiles_of
from gpumemnet.learning.train.texts_of_rows import texts_of
from gpumemnet.profile.record import ModelProfile

ROWS = DATA / "activity_h200.jsonl.xz"
RIDGE, ROUNDS, SMALL = 5.0, 4, 0.1
INTERVAL = (0.1, 0.9)
"""An interval of 80 %, from the errors on held-out lineages."""
MEASURED = {"step_s": "step_mean_s", "smact": "smact_pct", "busy": "graphics_pct", "dram": "dram_pct"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivitySamples:
    """Measured trainings with their texts; one row each.

    Attributes:
        names: Names of the columns of `numbers`.
        numbers: Features, shape (rows, features).
        targets: Measured values in the models' scale, by target.
        weight: Weights; all texts of one training share a weight of one.
        lineage: Group of each row; a group is never split between folds.
        form: Format of the text.
    """

    names: tuple[str, ...]
    numbers: Floats
    targets: dict[str, Floats]
    weight: Floats
    lineage: list[str]
    form: list[str]


def lineage(record: Record) -> str:
    """Return the group of a row: the random model, or the real model's name."""
    config = record["config"]
    return config["style"] if config["family"] == "real" else f"{config['seed']}.{config['index']}"


def load() -> ActivitySamples:
    """Read the rows with their profiles.

    Raises:
        ModelFileError: The profiles have another version.
    """
    numbers, weight, groups, forms = [], [], [], []
    targets: dict[str, list[float]] = {name: [] for name in activity.TARGETS}
    for record in read_records(ROWS):
        for form, text in record["profiles"].items():
            numbers.append(activity.vector(ModelProfile.from_text(text)))
            for name, key in MEASURED.items():
                value = record[key] / (1 if name == "step_s" else 100)
                targets[name].append(activity.scaled(name, value))
            weight.append(1 / len(record["profiles"]))
            groups.append(lineage(record))
            forms.append(form)
    return ActivitySamples(
        names=tuple(numbers[0]),
        numbers=np.array([list(row.values()) for row in numbers]),
        targets={name: np.array(values) for name, values in targets.items()},
        weight=np.array(weight),
        lineage=groups,
        form=forms,
    )


def fit(numbers: Floats, target: Floats, weight: Floats) -> tuple[float, Floats]:
    """Return intercept and coefficients.

    Args:
        numbers: (rows, features).
        target: (rows,).
        weight: Weight of each row, (rows,).
    """
    mean, deviation = numbers.mean(0), numbers.std(0) + 1e-9
    columns = np.column_stack([np.ones(len(target)), (numbers - mean) / deviation])
    penalty = np.diag([0.0, *([RIDGE] * numbers.shape[1])])
    each = weight
    for _ in range(ROUNDS):
        found = np.linalg.solve(columns.T @ (each[:, None] * columns) + penalty, columns.T @ (each * target))
        off = np.abs(target - columns @ found)
        each = weight * 0.3 / np.maximum(off, SMALL)
    slopes = found[1:] / deviation
    return float(found[0] - slopes @ mean), np.asarray(slopes)


def held_out(samples: ActivitySamples, target: Floats) -> Floats:
    """Return predictions of each row by models that were not trained on its lineage.

    Args:
        samples: Rows with numbers, weight and lineage.
        target: One number per row, (rows,).
    """
    found = np.zeros(len(target))
    for mask in folds(samples.lineage):
        intercept, slopes = fit(samples.numbers[~mask], target[~mask], samples.weight[~mask])
        found[mask] = intercept + samples.numbers[mask] @ slopes
    return found


def remake() -> None:
    """Recreate the profiles of all rows, from texts of models built on the meta device (minutes, no GPU)."""
    records = list(read_records(ROWS))
    with click.progressbar(records) as bar:
        for record in bar:
            config = record["config"]
            found = profiles_of(config | {"texts": texts_of(config)})
            record["profiles"] = {
                form: profile.to_text() for form, profile in found.items() if "," not in form
            }
    write_records(ROWS, records)


@click.command()
@click.option("--remake", "again", is_flag=True, help="Make the rows' profiles again first.")
def main(again: bool) -> None:
    """Print the errors on left-out lineages, then write the weights."""
    if again:
        remake()
    try:
        samples = load()
    except SummaryError as exc:
        raise SystemExit(f"{ROWS}: {exc}; add --remake") from exc
    shapes = np.array([form in ("torchinfo", "torchsummary") for form in samples.form])
    models = {}
    click.echo(
        "| left-out lineages | texts | median error | P90 error | of a constant |\n|---|---|---|---|---|"
    )
    for name, target in samples.targets.items():
        predicted = held_out(samples, target)
        intercept, slopes = fit(samples.numbers, target, samples.weight)
        off = target - predicted
        models[name] = {
            "intercept": intercept,
            "coefficients": {key: float(f"{c:.5g}") for key, c in zip(samples.names, slopes, strict=True)},
            "interval": {
                group: [float(f"{q:.4f}") for q in np.quantile(off[chosen], INTERVAL)]
                for group, chosen in (("shapes", shapes), ("no_shapes", ~shapes))
            },
        }
        for group, chosen in (("with shapes", shapes), ("print(model)", ~shapes)):
            _print(name, group, predicted[chosen], target[chosen])
    values = {"data_sha256": file_hash(ROWS), "models": models}
    activity.WEIGHTS.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _print(name: str, group: str, predicted: Floats, target: Floats) -> None:
    real = np.array([activity.unscaled(name, v) for v in target])
    guess = np.array([activity.unscaled(name, v) for v in predicted])
    off, plain = np.abs(guess - real), np.abs(np.median(real) - real)
    if name == "step_s":
        off, plain = off / real, plain / real
    click.echo(
        f"| {name} | {group}, {len(real)} | {np.median(off):.3f} | {np.quantile(off, 0.9):.3f}"
        f" | {np.median(plain):.3f} |"
    )


if __name__ == "__main__":
    main()
