"""Fit a trace's quantiles where cuDNN tries its algorithms: python bench/estimator/benchmark_quantiles.py ROWS...

ROWS are docs/results/settings.jsonl.xz and docs/results/programs.jsonl.xz. Prints BENCHMARK_FACTORS of
gpumemnet/tracing/trace/result.py: conformal quantiles of error over `doubt_bytes`, every network weighing the same, for
the trainings that set `torch.backends.cudnn.benchmark`. The error is that of what the process holds after the trials.
Shares that so few networks cannot show rise from the last that they can as they do without the flag. Below it: how the
factors without the flag do on the same rows, and these on each network when they are fitted on the others.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "programs"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "settings"))
from keep_rows import read, works
from program_tables import needed_bytes, profile_of
from settings_tables import FLAG

from gpumemnet.estimators.conformal import conformal_margin
from gpumemnet.estimators.registry import estimate
from gpumemnet.gpus import Gpu, gpu_named
from gpumemnet.tracing.trace.result import QUANTILE_FACTORS, doubt_bytes

PLAIN = dict(QUANTILE_FACTORS)
SHARES = tuple(PLAIN)
BOOKED, BOUND = 0.95, 0.99
GROWTH = 1.05
"""Of what a process holds between its steps after the trials; programs with more are left out."""
Factors = tuple[tuple[float, float], ...]


class BenchmarkRun(NamedTuple):
    """A training with the flag.

    Attributes:
        network: What it trains; all rows of one stay together.
        error: Measured less estimated, over the doubt.
        needed_bytes: Measured.
        estimate_bytes: Estimated.
        doubt_bytes: Of its trace.
    """

    network: str
    error: float
    needed_bytes: int
    estimate_bytes: int
    doubt_bytes: int


def grows(row: dict[str, Any]) -> bool:
    """Tell whether a program takes more from step to step, which is no effect of trials."""
    return bool(row["held_bytes"] > GROWTH * row["held_first_bytes"])


def runs(rows: Iterable[dict[str, Any]], gpu: Gpu) -> Iterator[BenchmarkRun]:
    """Yield the trainings with the flag that were measured and traced; a network's trace needs no flag.

    Args:
        rows: Packed ones.
        gpu: Where they were measured.
    """
    rows = list(rows)
    profiles = {row["script"]: profile_of(row) for row in rows if "profile" in row}
    for row in rows:
        if row["kind"] != "measured" or not works(row) or grows(row):
            continue
        line = row["script"]
        flagged = FLAG in line
        profile = profiles.get(line.replace(FLAG, "") if flagged else line)
        if profile is None or not (flagged or profile.benchmark):
            continue
        estimated = estimate(profile._replace(benchmark=1), gpu=gpu)
        needed = needed_bytes(row, benchmark=True)
        doubt = doubt_bytes(profile.reserved_bytes, profile.borrowed_bytes)
        error = (needed - estimated.estimate_bytes) / doubt
        network = line.split()[1] if flagged else line
        yield BenchmarkRun(network, error, needed, estimated.estimate_bytes, doubt)


def fitted(found: Sequence[BenchmarkRun]) -> Factors:
    """Return the factor of each share."""
    of_network = Counter(each.network for each in found)
    errors = [each.error for each in found]
    weights = [1 / of_network[each.network] for each in found]
    shown = [share for share in SHARES if (len(of_network) + 1) * share <= len(of_network)]
    factors = [max(conformal_margin(errors, share, weights), PLAIN[share]) for share in shown]
    further = [factors[-1] + PLAIN[share] - PLAIN[shown[-1]] for share in SHARES[len(shown) :]]
    return tuple(zip(SHARES, (round(each, 3) for each in (*factors, *further)), strict=True))


def results_with(
    found: Sequence[BenchmarkRun], factors: Factors
) -> Iterator[tuple[bool, bool, float, float]]:
    """Yield for each training whether booking and bound are exceeded, and both over what was measured."""
    of = dict(factors)
    for each in found:
        booked, bound = (each.estimate_bytes + of[share] * each.doubt_bytes for share in (BOOKED, BOUND))
        needed = each.needed_bytes
        yield needed > booked, needed > bound, booked / needed, bound / needed


def line_of(name: str, results: Sequence[tuple[bool, bool, float, float]]) -> str:
    """Return a line on how factors do."""
    booked, bound, of_booked, of_bound = zip(*results, strict=True)
    return (
        f"{name}: above what is booked {sum(booked)}, above the bound {sum(bound)} of {len(results)};"
        f" booked/measured {statistics.fmean(of_booked):.3f}, bound/measured {statistics.fmean(of_bound):.3f}"
    )


def main() -> None:
    """Print the factors and how they do."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--gpu", default="h100", help="where they were measured")
    parser.add_argument("--each", action="store_true", help="print every training")
    options = parser.parse_args()
    found = list(runs((row for path in options.rows for row in read(path)), gpu_named(options.gpu)))
    networks = sorted({each.network for each in found})
    if options.each:
        for each in sorted(found, key=lambda each: each.error):
            print(f"{each.error:+.3f} {each.estimate_bytes / each.needed_bytes - 1:+.1%} {each.network[:80]}")
    errors = sorted(abs(each.estimate_bytes / each.needed_bytes - 1) for each in found)
    p95 = errors[math.ceil(0.95 * len(errors)) - 1]
    print(
        f"{len(found)} trainings of {len(networks)} networks: error {statistics.median(errors):.1%}, P95 {p95:.1%}"
    )
    print(f"BENCHMARK_FACTORS = {fitted(found)}")
    print(line_of("without the flag's factors", list(results_with(found, QUANTILE_FACTORS))))
    print(line_of("with them", list(results_with(found, fitted(found)))))
    left_out = [
        result
        for network in networks
        for result in results_with(
            [each for each in found if each.network == network],
            fitted([each for each in found if each.network != network]),
        )
    ]
    print(line_of("fitted on the other networks", left_out))


if __name__ == "__main__":
    main()
