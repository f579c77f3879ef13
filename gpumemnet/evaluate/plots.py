"""The plots of docs/estimator.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from gpumemnet.estimators import analytic, conformal, features, ours, tree_model
from gpumemnet.evaluate.heldout import MAIN_FORMAT, Answers
from gpumemnet.train.rows import GPU, Row
from gpumemnet.units import MIB

DPI = 110
LIBRARIES = ("torchvision", "timm", "transformers")


def draw(found: list[Answers], folder: Path) -> list[Path]:
    """Draw all plots.

    Args:
        found: Answers on the held-out models; the first are ours.
        folder: Where the PNG files go.

    Returns:
        Their paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {answers.estimator: answers for answers in found}
    main = by_name["ours, torchinfo"]
    return [
        _actual_against_estimate(
            main, [by_name[name] for name in ("boosted", "horus", "faketensor") if name in by_name], folder
        ),
        _error_by_library(main, folder),
        _calibration(main, folder),
    ]


def _actual_against_estimate(main: Answers, others: list[Answers], folder: Path) -> Path:
    figure, axes = plt.subplots(
        1, 1 + len(others), figsize=(4.2 * (1 + len(others)), 4.4), sharex=True, sharey=True
    )
    for axis, answers in zip(np.atleast_1d(axes), (main, *others), strict=True):
        actual = np.array([row.peak_mib for row in answers.rows]) / 1e3
        estimate = np.array(answers.estimate_mib) / 1e3
        if answers is main:
            upper = np.array(answers.upper_mib) / 1e3
            axis.vlines(
                actual, estimate, upper, color="tab:blue", alpha=0.25, linewidth=1, label="up to the bound"
            )
        axis.plot(actual, estimate, ".", color="tab:blue", label="estimate")
        line = np.array([0.5, 150])
        axis.plot(line, line, color="black", linewidth=0.8)
        axis.set(xscale="log", yscale="log", xlim=(0.7, 100), ylim=(0.3, 300), title=answers.estimator)
        axis.set_xlabel("measured peak, thousand MiB")
        axis.grid(alpha=0.3)
    np.atleast_1d(axes)[0].set_ylabel("estimate, thousand MiB")
    np.atleast_1d(axes)[0].legend(loc="upper left", fontsize=8)
    return _save(figure, folder / "actual_vs_estimate.png")


def _error_by_library(main: Answers, folder: Path) -> Path:
    error = 100 * (np.array(main.estimate_mib) / np.array([row.peak_mib for row in main.rows]) - 1)
    labels, values = [], []
    for library in LIBRARIES:
        for family in ("cnn", "transformer", "mlp", "other"):
            chosen = [
                value
                for value, row in zip(error, main.rows, strict=True)
                if row.group.startswith(f"real/{library}:") and row.profile.family == family
            ]
            if len(chosen) > 2:
                labels.append(f"{library}\n{family} ({len(chosen)})")
                values.append(chosen)
    figure, axis = plt.subplots(figsize=(9, 4.4))
    axis.boxplot(values, tick_labels=labels, whis=(5, 95), showfliers=True, flierprops={"markersize": 3})
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set(
        ylabel="error of the estimate, %",
        title="ours on held-out real models (box: quartiles, whiskers: 5 and 95 %)",
    )
    axis.set_ylim(-80, 120)
    axis.grid(axis="y", alpha=0.3)
    return _save(figure, folder / "error_by_family.png")


def _calibration(main: Answers, folder: Path) -> Path:
    stored = tree_model.read(ours.WEIGHTS)["calibration"]
    learned = tree_model.load(ours.WEIGHTS)
    bases, smooth = np.array([_base(row) for row in main.rows]), learned.constants["smooth_mib"]
    estimated = np.log(np.array(main.estimate_mib) - bases + smooth)
    actual = np.log(np.maximum([row.peak_mib for row in main.rows] - bases, 0.0) + smooth)
    widths = np.array(
        [
            conformal.width(
                learned.trees["width"].predict(features.vector(row.profile)), learned.constants, row.profile
            )
            for row in main.rows
        ]
    )
    excesses = actual - estimated - widths
    figure, axis = plt.subplots(figsize=(5, 4.6))
    levels = np.array(stored["levels"])
    # Stored margins add to the ensemble's width; the bound's own margin is in `widths` already.
    margins = np.array(stored["margins"]) - learned.constants[f"margin_{MAIN_FORMAT}"]
    axis.plot(100 * levels, [100 * (excesses <= margin).mean() for margin in margins], ".-", color="tab:blue")
    axis.plot([50, 100], [50, 100], color="black", linewidth=0.8)
    axis.set(
        xlabel="promised: share of jobs below the bound, %",
        ylabel="seen on held-out real models, %",
        title="calibration of the bound",
    )
    axis.grid(alpha=0.3)
    return _save(figure, folder / "bound_calibration.png")


def _base(row: Row) -> float:
    return analytic.breakdown(row.profile, GPU)["base"] / MIB


def _save(figure: Figure, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
    return path
