"""Draw the plots of docs/measurements/2026-11-summaries.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from gpumemnet.estimators import conformal
from gpumemnet.learning.evaluate.heldout import Answers
from gpumemnet.units import MIB

DPI = 110
LIBRARIES = ("torchvision", "timm", "transformers")


def draw(found: list[Answers], folder: Path) -> list[Path]:
    """Draw all plots.

    Args:
        found: Answers on the held-out models, RAD's first.
        folder: Folder for the PNG files.

    Returns:
        Their paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {answers.estimator: answers for answers in found}
    main = by_name["rad, torchinfo"]
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
        title="RAD on held-out real models (box: quartiles, whiskers: 5 and 95 %)",
    )
    axis.set_ylim(-80, 120)
    axis.grid(axis="y", alpha=0.3)
    return _save(figure, folder / "error_by_family.png")


def _calibration(main: Answers, folder: Path) -> Path:
    actual = np.array([row.peak_mib for row in main.rows])
    figure, axis = plt.subplots(figsize=(5, 4.6))
    seen = [
        100 * (actual <= np.array([answer.quantile(level) / MIB for answer in main.answers])).mean()
        for level in conformal.LEVELS
    ]
    axis.plot(100 * np.array(conformal.LEVELS), seen, ".-", color="tab:blue")
    axis.plot([50, 100], [50, 100], color="black", linewidth=0.8)
    axis.set(
        xlabel="promised: share of jobs below the bound, %",
        ylabel="seen on held-out real models, %",
        title="calibration of the bound",
    )
    axis.grid(alpha=0.3)
    return _save(figure, folder / "bound_calibration.png")


def _save(figure: Figure, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
    return path
