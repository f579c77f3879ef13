"""Fit the simulator's interference model to measured groups, and say how wrong it is on workloads left out.

    python bench/interference/fit.py

Needs numpy and scipy, which come with scikit-learn. The table is gpumemnet/data/interference_h200.csv.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from slurm_plugin.simulate.gpus import interference

TABLE = Path(__file__).resolve().parents[2] / "gpumemnet/data/interference_h200.csv"
HALVINGS = 44
"""Of the interval in which the delay is looked for."""
Floats = NDArray[np.float64]
Group = list[dict[str, str]]


class Groups:
    """Groups of trainings as padded arrays, one row a group, one column a member.

    Attributes:
        names: Workload of each member.
        present: Whether there is one.
        busy: Share of its time in which its kernels run, pauses for data counted in.
        intensity: SM activity while they run.
        kernel: How long one of them takes, in the model's typical kernels.
        slowdown: Measured.
        together: SM activity of the GPU, one for each group.
    """

    def __init__(self, groups: list[Group]) -> None:
        """Take the lines of each group."""
        shape = (len(groups), max(len(group) for group in groups))
        self.names = np.full(shape, "", dtype=object)
        self.present = np.zeros(shape, bool)
        self.busy, self.intensity, self.slowdown = np.zeros(shape), np.zeros(shape), np.ones(shape)
        self.kernel = np.ones(shape)
        self.together = np.array([float(group[0]["group_smact"]) for group in groups])
        for row, group in enumerate(groups):
            for column, line in enumerate(group):
                load = load_of(line)
                self.names[row, column] = line["workload"].partition("#")[0]
                self.present[row, column] = True
                self.busy[row, column] = load.busy * load.duty
                self.intensity[row, column] = load.intensity
                self.slowdown[row, column] = float(line["slowdown"])
                self.kernel[row, column] = load.kernel_s / interference.TYPICAL_KERNEL_S


def load_of(line: dict[str, str]) -> interference.Load:
    """Return what a training does alone."""
    busy, step_s = float(line["alone_busy"]), float(line["alone_step_s"])
    kernels = float(line["kernels"] or 0)
    return interference.Load(
        smact=float(line["alone_smact"]),
        busy=busy,
        duty=float(line["duty"]),
        kernel_s=busy * step_s / kernels if kernels else interference.TYPICAL_KERNEL_S,
    )


def read(sharing: str) -> Groups:
    """Return the groups of two and more of one way of sharing."""
    lines: dict[str, Group] = defaultdict(list)
    for line in csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()):
        if line["sharing"] == sharing:
            lines[line["group"]].append(line)
    return Groups([group for group in lines.values() if len(group) > 1])


def predict(theta: Floats, groups: Groups) -> Floats:
    """Return slowdowns by the model of `slurm_plugin.simulate.gpus.interference`; theta: CROWDING, SHORTNESS."""
    crowding, shortness = np.abs(theta)
    work = groups.busy * groups.intensity
    total = work.sum(1, keepdims=True)
    reached = np.maximum(work.max(1, keepdims=True), total / (1 + total**crowding) ** (1 / crowding))
    behind = np.where(groups.present, (total - work) / groups.kernel**shortness, 0)

    def slowed(delay: Floats) -> Floats:
        return np.clip(groups.busy * (1 + delay * behind), 1, interference.LONGEST_SLOWDOWN)

    low = np.zeros((len(work), 1))
    high = np.full((len(work), 1), interference.MOST_WAIT)
    for _ in range(HALVINGS):
        delay = (low + high) / 2
        slower = (work / slowed(delay)).sum(1, keepdims=True) > reached
        low, high = np.where(slower, delay, low), np.where(slower, high, delay)
    return slowed(high)


def fit(groups: Groups, used: NDArray[np.bool_]) -> Floats:
    """Return the coefficients that fit the used members best, large errors counted less."""
    found = least_squares(
        lambda theta: (np.log(predict(theta, groups)) - np.log(groups.slowdown))[used],
        [5.5, 0.7],
        loss="soft_l1",
        f_scale=0.2,
    )
    return np.abs(np.asarray(found.x, float))


def say(name: str, predicted: Floats, measured: Floats) -> None:
    """Print one line of the table."""
    off = np.abs(predicted / measured - 1)
    print(f"| {name} | {len(off)} | {np.median(off):.1%} | {np.quantile(off, 0.9):.0%} |")


def say_work(groups: Groups, fitted: Floats) -> None:
    """Print what a GPU gets done by the sum of SM activity alone: measured, the GPU's own, and the model's error."""
    work = np.where(groups.present, groups.busy * groups.intensity, 0)
    total, done = work.sum(1), (work / groups.slowdown).sum(1)
    off = np.abs((work / fitted).sum(1) / done - 1)
    print(
        "\n| sum of SMACT alone | groups | done, P10 | median | P90 | GPU's SMACT, median | model off, median | P90 |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for low, high in pairwise((0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 9.0)):
        chosen = (low < total) & (total <= high)
        cells = [
            *np.quantile(done[chosen], (0.1, 0.5, 0.9)),
            np.median(groups.together[chosen]),
            *np.quantile(off[chosen], (0.5, 0.9)),
        ]
        print(f"| {low:g} to {high:g} | {chosen.sum()} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    crowded = np.quantile(off[total > 1], (0.5, 0.9))
    print(f"\nabove 1: off by {crowded[0]:.1%} at the median, {crowded[1]:.0%} at P90")


def in_turns(space: float, groups: Groups) -> Floats:
    """Return slowdowns where contexts take turns: each has a fair share of this part of the time."""
    levels = [
        interference.fair_level(list(busy[there]), space)
        for busy, there in zip(groups.busy, groups.present, strict=True)
    ]
    return np.maximum(1, groups.busy / np.array(levels)[:, None])


def say_turns(groups: Groups) -> None:
    """Print how near a fair share of the time comes without MPS, and a straight line in the neighbours' time."""
    used, others = groups.present, groups.busy.sum(1, keepdims=True) - groups.busy

    def off(predicted: Floats) -> Floats:
        return (np.log(predicted) - np.log(groups.slowdown))[used]

    def fitted(predicted: Callable[[float], Floats], start: float) -> tuple[float, Floats]:
        found = least_squares(lambda c: off(predicted(c[0])), [start], loss="soft_l1", f_scale=0.2).x[0]
        return found, predicted(found)[used]

    space, fair = fitted(lambda space: in_turns(space, groups), 1.0)
    say(f"without MPS: a fair share of {space:.2f} of the time", fair, groups.slowdown[used])
    cost, line = fitted(lambda cost: np.maximum(1, groups.busy * (1 + cost * others)), 1.0)
    say(f"without MPS: b * (1 + {cost:.2f} * sum of b)", line, groups.slowdown[used])


def eased(groups: int = 20_000) -> float:
    """Return how far an incoming job speeds the luckiest one of a random group up, in the worst group of a hundred."""
    draw = random.Random(1)
    found = []
    for _ in range(groups):
        loads = [
            interference.Load(
                smact=draw.uniform(0, 0.95), busy=draw.uniform(0.02, 1), duty=draw.uniform(0.2, 1)
            )
            for _ in range(draw.randint(2, 9))
        ]
        before, after = interference.slowdowns(loads[1:]), interference.slowdowns(loads)[1:]
        found.append(max(0.0, *(1 - new / old for new, old in zip(after, before, strict=True))))
    return sorted(found)[int(0.99 * groups)]


def main() -> None:
    """Print coefficients, then errors with each workload left out."""
    groups = read("mps")
    crowding, shortness = fit(groups, groups.present)
    print(f"CROWDING, SHORTNESS = {crowding:.2f}, {shortness:.2f}\n")
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
    say("all, none slowed", np.ones(int(groups.present.sum())), groups.slowdown[groups.present])
    say_turns(read("time-sliced"))
    say_work(groups, predict(np.array([crowding, shortness]), groups))
    print(f"an incoming job speeds another one up by {eased():.0%} or more in one random group of a hundred")


if __name__ == "__main__":
    main()
