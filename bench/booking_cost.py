"""What booking at each quantile costs, and how many jobs fit on a card: for texts of one format.

    python bench/booking_cost.py                   # training runs of real models whose texts are stored, out of fold
    python bench/booking_cost.py --rows heldout    # the held-out runs, with the weights that ship

A job books a quantile of its estimate. If it needs more, it has lost LOST of its run and runs once more: alone on a
card (exclusive), or with what it needed plus 5 GiB (escalate). Told is booked memory x time over what was needed, all
jobs together. "With trim" a job that fits its booking gives back, after SETTLING of its run, what its peak and a margin
leave (core/ledger/trim.py); no reruns are counted there. The last lines fill cards with random jobs until the next does not
fit: by bounds; by estimates with one reserve for all of them, sum of estimates + sqrt(sum of (bound - estimate)^2),
each counted at most at its bound. Jobs of one model are not independent, so each fill takes a model once. Overflow is a
fill whose true needs exceed the card.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import dataclass
from pathlib import Path

from gpumemnet.estimate import Quantiles
from gpumemnet.estimators import conformal, registry
from gpumemnet.learning.dataset.store import HELDOUT_ROWS, TRAINING_ROWS
from gpumemnet.learning.train import correction
from gpumemnet.learning.train.rows import GPU, Row, load_rows, matrix
from gpumemnet.units import MIB
from slurm_plugin.core.ledger.trim import MARGIN, MARGIN_BYTES

CARDS_GIB = (40, 80, 141)
SHARES = (0.5, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99)
LOST = 0.03
SETTLING = 0.05
"""Of a run, until what it needs is known: two minutes of forty."""
ESCALATED_MIB = 5 * 1024
FILLS = 2000


@dataclass(frozen=True, slots=True)
class Job:
    """One run with what it needed and what was expected, in MiB; `model` ties runs together."""

    model: str
    kind: str
    need: float
    quantiles: Quantiles

    def at(self, share: float) -> float:
        """Return the MiB that this share of jobs stays below."""
        return self.quantiles.at(share) / MIB


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", choices=("train", "heldout"), default="train")
    parser.add_argument("--texts", type=Path, default=Path(".rad/texts.jsonl"))
    options = parser.parse_args()
    jobs = held_out() if options.rows == "heldout" else out_of_fold(options.texts)
    for kind in ("torchinfo", "torchinfo_hidden", "torchsummary"):
        chosen = [job for job in jobs if job.kind == kind]
        if chosen:
            report(kind, chosen)
    report("these together", [job for job in jobs if job.kind.startswith("torch")])
    printed = [job for job in jobs if job.kind.startswith("module_repr") and "_assumed" not in job.kind]
    report("print(model), the input's size given where it matters", printed)


def held_out() -> list[Job]:
    """Return the held-out runs as the shipped weights answer for them."""
    return [
        _job(row, quantiles)
        for row in load_rows(HELDOUT_ROWS)
        if (quantiles := registry.ESTIMATORS["ours"](row.profile, GPU).quantiles) is not None
    ]


def out_of_fold(texts: Path) -> list[Job]:
    """Return runs of real models with answers of corrections and quantiles that saw none of the same model."""
    rows = load_rows(TRAINING_ROWS, texts, stored_only=True)
    samples = correction.samples(rows, matrix(rows), GPU)
    learned = correction.learn(samples)
    curves = [correction.estimates(samples, learned.held_out, widths) for widths in learned.held_out_widths.T]
    return [
        _job(row, Quantiles(points=tuple((s, int(c[at] * MIB)) for s, c in zip(conformal.LEVELS, curves, strict=True))))
        for at, row in enumerate(rows)
        if samples.real[at]
    ]  # fmt: skip


def _job(row: Row, quantiles: Quantiles) -> Job:
    return Job(
        model=row.group, kind=conformal.kind(row.profile), need=float(row.peak_mib), quantiles=quantiles
    )


def report(kind: str, jobs: list[Job]) -> None:
    """Print the cost of each quantile, and how many jobs fit."""
    print(f"{kind}: {len(jobs)} texts")
    cards = "/".join(map(str, CARDS_GIB))
    print(f"  booked   exceeded  booked/actual  with trim  exclusive on {cards} GiB  escalate on {cards} GiB")
    for share in SHARES:
        exceeded = sum(job.need > job.at(share) for job in jobs) / len(jobs)
        ratio = sum(job.at(share) / job.need for job in jobs) / len(jobs)
        costs = [
            " / ".join(f"{cost(jobs, share, card * 1024, escalate=escalate):.2f}" for card in CARDS_GIB)
            for escalate in (False, True)
        ]
        print(
            f"  {share:6.0%}  {exceeded:8.1%}  {ratio:13.2f}  {trimmed(jobs, share):9.2f}  {costs[0]}  {costs[1]}"
        )
    for name, pooled in (("bounds", False), ("pooled", True)):
        found = [fills(jobs, card * 1024, pooled=pooled) for card in CARDS_GIB]
        print(f"  {name}: {' / '.join(f'{count:.1f}' for count, _ in found)} jobs on {cards} GiB,"
              f" {sum(over for _, over in found)} of {FILLS * len(CARDS_GIB)} fills overflow")  # fmt: skip


def cost(jobs: list[Job], share: float, card_mib: float, *, escalate: bool) -> float:
    """Return booked memory x time over the true need; jobs that need more than the card are left out."""
    booked = needed = 0.0
    for job in jobs:
        if job.need > card_mib:
            continue
        first = min(job.at(share), card_mib)
        needed += job.need
        if job.need <= first:
            booked += first
            continue
        booked += LOST * first + (min(job.need + ESCALATED_MIB, card_mib) if escalate else card_mib)
    return booked / needed


def trimmed(jobs: list[Job], share: float) -> float:
    """Return booked memory x time over the need of the jobs that fit their bookings, where settled jobs give back."""
    fitting = [job for job in jobs if job.need <= job.at(share)]
    booked = sum(
        SETTLING * job.at(share) + (1 - SETTLING) * min(job.at(share), job.need * MARGIN + MARGIN_BYTES / MIB)
        for job in fitting
    )
    return booked / sum(job.need for job in fitting)


def fills(jobs: list[Job], card_mib: float, *, pooled: bool) -> tuple[float, int]:
    """Return the mean number of jobs that a card takes, and how many fills need more than it has."""
    draw = random.Random(1)
    count = over = 0
    fitting = [job for job in jobs if job.at(conformal.CONFIDENCE) <= card_mib]
    for _ in range(FILLS):
        held: list[Job] = []
        for job in draw.sample(fitting, len(fitting)):
            if any(other.model == job.model for other in held):
                continue
            if demand([*held, job], pooled=pooled) > card_mib:
                break
            held.append(job)
        count += len(held)
        over += sum(job.need for job in held) > card_mib
    return count / FILLS, over


def demand(jobs: list[Job], *, pooled: bool) -> float:
    """Return what these jobs ask of a card, in MiB."""
    bounds = [job.at(conformal.CONFIDENCE) for job in jobs]
    if not pooled:
        return sum(bounds)
    guesses = [job.at(0.5) for job in jobs]
    reserve = math.sqrt(sum((bound - guess) ** 2 for bound, guess in zip(bounds, guesses, strict=True)))
    return min(sum(guesses) + reserve, sum(bounds))


if __name__ == "__main__":
    main()
