"""Fit the simulator's interference model to measured groups, and say how wrong it is on workloads left out.

    python bench/interference_fit.py

Needs numpy and scipy, which come with scikit-learn. The table is gpumemnet/data/interference_h200.csv.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from slurm_plugin.admin.simulate import interference

TABLE = Path(__file__).resolve().parents[1] / "gpumemnet/data/interference_h200.csv"
Floats = NDArray[np.float64]
Group = list[dict[str, str]]


class Groups:
    """Groups of trainings as padded arrays, one row a group, one column a member.

    Attributes:
        names: Workload of each member.
        present: Whether there is one.
        busy: Share of its time in which its kernels run, pauses for data counted in.
        intensity: SM activity while they run.
        slowdown: Measured.
    """

    def __init__(self, groups: list[Group]) -> None:
        """Take the lines of each group."""
        shape = (len(groups), max(len(group) for group in groups))
        self.names = np.full(shape, "", dtype=object)
        self.present = np.zeros(shape, bool)
        self.busy, self.intensity, self.slowdown = np.zeros(shape), np.zeros(shape), np.ones(shape)
        for row, group in enumerate(groups):
            for column, line in enumerate(group):
                load = interference.Load(
                    smact=float(line["alone_smact"]), busy=float(line["alone_busy"]), duty=float(line["duty"])
                )
                self.names[row, column] = line["workload"].partition("#")[0]
                self.present[row, column] = True
                self.busy[row, column] = load.busy * load.duty
                self.intensity[row, column] = load.intensity
                self.slowdown[row, column] = float(line["slowdown"])


def read(sharing: str) -> Groups:
    """Return the groups of two and more of one way of sharing."""
    lines: dict[str, Group] = defaultdict(list)
    for line in csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()):
        if line["sharing"] == sharing:
            lines[line["group"]].append(line)
    return Groups([group for group in lines.values() if len(group) > 1])


def predict(theta: Floats, groups: Groups) -> Floats:
    """Return slowdowns by the model of `slurm_plugin.admin.simulate.interference`; theta: FULL, WAITING, SHARPNESS."""
    full, waiting, sharpness = np.abs(theta)
    push = groups.busy * groups.intensity
    others = push.sum(1, keepdims=True) - push
    grown = groups.busy * (1 + others * (full * groups.intensity + waiting * (1 - groups.intensity)))
    found: Floats = np.asarray(((1 + grown**sharpness) / (1 + groups.busy**sharpness)) ** (1 / sharpness))
    return found


def fit(groups: Groups, used: NDArray[np.bool_]) -> Floats:
    """Return the coefficients that fit the used members best, large errors counted less."""
    found = least_squares(
        lambda theta: (np.log(predict(theta, groups)) - np.log(groups.slowdown))[used],
        [0.3, 1.0, 3.0],
        loss="soft_l1",
        f_scale=0.2,
    )
    return np.abs(np.asarray(found.x, float))


def say(name: str, predicted: Floats, measured: Floats) -> None:
    """Print one line of the table."""
    off = np.abs(predicted / measured - 1)
    print(f"| {name} | {len(off)} | {np.median(off):.1%} | {np.quantile(off, 0.9):.0%} |")


def main() -> None:
    """Print coefficients, then errors with each workload left out."""
    groups = read("mps")
    full, waiting, sharpness = fit(groups, groups.present)
    print(f"FULL, WAITING, SHARPNESS = {full:.3f}, {waiting:.2f}, {sharpness:.2f}\n")
    out = np.zeros_like(groups.slowdown)
    for name in sorted(set(groups.names[groups.present])):
        without = groups.present & ~(groups.names == name).any(1)[:, None]
        mine = groups.names == name
        out[mine] = predict(fit(groups, without), groups)[mine]
    size = groups.present.sum(1, keepdims=True)
    print("| slowdown of a training, its workload left out of the fit | n | median error | P90 error |")
    print("|---|---|---|---|")
    for name, of_size in (
        ("pairs", size == 2),
        ("triples", size == 3),
        ("four to eight", size > 3),
        ("all", size > 0),
    ):
        chosen = groups.present & of_size
        say(name, out[chosen], groups.slowdown[chosen])
    smact = np.where(groups.present, groups.busy * groups.intensity, 0).sum(1, keepdims=True)
    say(
        "all, by the sum of SMACT",
        np.maximum(1, smact + 0 * out)[groups.present],
        groups.slowdown[groups.present],
    )
    say("all, nobody slowed", np.ones(int(groups.present.sum())), groups.slowdown[groups.present])
    sliced = read("time-sliced")
    others = sliced.busy.sum(1, keepdims=True) - sliced.busy
    used = sliced.present
    cost = least_squares(
        lambda c: (np.log(np.maximum(1, sliced.busy * (1 + c[0] * others))) - np.log(sliced.slowdown))[used],
        [1.0],
        loss="soft_l1",
        f_scale=0.2,
    ).x[0]
    say(
        f"without MPS: b * (1 + {cost:.2f} * sum of b)",
        np.maximum(1, sliced.busy * (1 + cost * others))[used],
        sliced.slowdown[used],
    )


if __name__ == "__main__":
    main()
