"""Make runs within a budget of GPU time: bench/replay/campaign.sh OUT RUNS --budget-s S [--call-s 580] COMMON ...

RUNS is a file with the options of a run on each line, the most wanted first; COMMON are options that all of them have.
Each run's length is simulated before anything starts, and the runs are packed into calls of at most CALL_S. One call of
this program makes the runs of one such call, and says whether there is more to do. What is in OUT already is not made
again, so the same command goes on after whatever ended it, on this machine or on another that has OUT.

    --plan          print the calls, make nothing
    --compressions  print which compressions fit the budget, make nothing

The exit status is 0 when every run is there, 3 when another call is to be made, 1 when runs are left for which there is
no time, or that were cut off twice, and 2 when a person should look first: something is missing that a run would find
out too late, or a run failed, or lost jobs, as the others then would.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from replay.dies import with_parent
from replay.packing import Packed, packed
from replay.predict import Prediction, predict
from replay.wanted import Run, Unready, argv_of, read_runs, refuse_unready
from slurm_plugin.core.errors import ConfigError

LOG = "campaign.jsonl"
MOST_ATTEMPTS = 2
"""What was cut off so often is not tried again: it takes longer than a call, or is stuck."""
AGAIN = 1.05
"""How much longer than before the same run may take."""
FRESH = 0.9
"""What was cut off is only tried again with so much of a call before it."""
DOWN_S = 15.0
"""What a run takes, once it is cut off, to write what it knows."""
MOST_LOST = 0.1
"""Where more jobs did not end well, something is wrong with all of them."""
COMPRESSIONS = (80, 100, 120, 130, 140, 150, 160, 170, 180, 200, 240)
START_UP_SHARE = 0.10
"""Above it a run shows start-ups more than of sharing."""
WORDS = {0: "complete", 3: "cut off"}


def results(out: Path, names: Sequence[str]) -> dict[str, bool]:
    """Return which runs have a result, and whether it is whole."""
    found = {}
    for name in names:
        file = out / f"{name}.json"
        if file.exists():
            found[name] = not json.loads(file.read_text())["cut"]
    return found


def attempts(out: Path) -> Iterator[dict[str, Any]]:
    """Yield what earlier calls did; a last line that was cut off is left out."""
    log = out / LOG
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def lengths(
    runs: Mapping[str, Run], predicted: Mapping[str, Prediction], done: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Return how long each run may take: as simulated, or as long as the same run took before.

    Args:
        runs: The runs.
        predicted: What the simulation says of them.
        done: What earlier calls did.
    """
    took_s = {_but_repetition(row["run"]): row["took_s"] for row in done if row["outcome"] == "complete"}
    return {
        name: took_s[alike] * AGAIN if (alike := _but_repetition(name)) in took_s else predicted[name].took_s
        for name in runs
    }


def _but_repetition(name: str) -> str:
    return name.rpartition("-r")[0]


class Campaign:
    """The runs of one call."""

    def __init__(self, options: argparse.Namespace, runs: Mapping[str, Run], began_s: float) -> None:
        """Predict; nothing is started.

        Args:
            options: The campaign's.
            runs: The runs by name, the most wanted first.
            began_s: When this call began, by time.monotonic().
        """
        self.options, self.runs, self.began_s = options, runs, began_s
        self.predicted = {name: predict(run) for name, run in runs.items()}

    def packed(self) -> Packed:
        """Return what is left to do, from now on."""
        whole = results(self.options.out, list(self.runs))
        length_s = self._lengths()
        tried = [row["run"] for row in attempts(self.options.out)]
        wanted = {
            name: length_s[name]
            for name in sorted(self.runs, key=tried.count)
            if not whole.get(name) and tried.count(name) < MOST_ATTEMPTS
        }
        spent_s = time.monotonic() - self.began_s
        return packed(
            wanted,
            rest_s=self.options.call_s - spent_s,
            call_s=self.options.call_s,
            budget_s=self.options.budget_s - spent_s,
        )

    def _lengths(self) -> dict[str, float]:
        done = list(attempts(self.options.out))
        cut = {row["run"] for row in done if row["outcome"] == WORDS[3]}
        found = lengths(self.runs, self.predicted, done)
        return {name: FRESH * self.options.call_s if name in cut else found[name] for name in self.runs}

    def make(self) -> int:
        """Make the runs of this call; return the exit status."""
        while first := self.packed().calls[0]:
            if fault := self._make(first[0]):
                print(
                    f"replay.campaign: {first[0]}: {fault}; look at it, the same command goes on",
                    file=sys.stderr,
                )
                return 2
        left = self.packed()
        self.show(left)
        if left.calls[1:]:
            return 3
        whole = results(self.options.out, list(self.runs))
        return int(not all(whole.get(name) for name in self.runs))

    def _make(self, name: str) -> str:
        """Make a run; return what is wrong with it, "" if it is well, or was cut off."""
        began_s = time.monotonic()
        limit_s = self.options.call_s - (began_s - self.began_s) - DOWN_S
        argv = [sys.executable, "-m", "replay.run", str(self.options.out), *argv_of(self.runs[name])]
        print(f"\n{name}: {self.predicted[name].makespan_s:.0f} s expected, {limit_s:.0f} s left", flush=True)
        argv += ["--limit-s", str(round(limit_s))]
        ends_with_us = with_parent(signal.SIGTERM)  # on which it takes its cluster down
        status = subprocess.run(argv, check=False, preexec_fn=ends_with_us).returncode
        row = {
            "run": name,
            "outcome": WORDS.get(status, f"failed with {status}"),
            "took_s": round(time.monotonic() - began_s, 1),
            "expected_s": self.predicted[name].makespan_s,
        }
        with (self.options.out / LOG).open("a") as log:
            log.write(json.dumps(row) + "\n")
        print(f"{name}: {row['outcome']} after {row['took_s']} s", flush=True)
        if status:
            return "" if status in WORDS else str(row["outcome"])
        figures = json.loads((self.options.out / f"{name}.json").read_text())["figures"]
        lost = figures["jobs"] - figures["ended_well"]
        return (
            f"{lost} of {figures['jobs']} jobs did not end well" if lost > MOST_LOST * figures["jobs"] else ""
        )

    def show(self, plan: Packed) -> None:
        """Print what is to be done."""
        for number, names in enumerate(plan.calls):
            for name in names:
                found, took_s = self.predicted[name], self._lengths()[name]
                share = f"start-up {found.start_up_share:.0%}"
                print(
                    f"call {number + 1}: {name}: {found.makespan_s:.0f} s, with all {took_s:.0f} s, {share}"
                )
        for name in plan.too_long:
            print(f"longer than a call: {name}: {self.predicted[name].took_s:.0f} s; compress more")
        for name in plan.no_time:
            print(f"no time is left: {name}: {self.predicted[name].took_s:.0f} s")


def compressions(runs: Sequence[Run], *, call_s: float, budget_s: float) -> None:
    """Print which compressions fit a budget.

    Args:
        runs: The runs, whose own compression is left aside.
        call_s: How long a call may be.
        budget_s: What all may take together.
    """
    print(
        "| compressed | longest run | all runs | calls | share of start-up, at most | fits |\n|---|---|---|---|---|---|"
    )
    for compress in COMPRESSIONS:
        found = {}
        for number, run in enumerate(runs):
            found[str(number)] = predict(argparse.Namespace(**vars(run) | {"compress": float(compress)}))
        took_s = {name: one.took_s for name, one in found.items()}
        plan = packed(took_s, rest_s=call_s, call_s=call_s, budget_s=budget_s)
        share = max(one.start_up_share for one in found.values())
        fits = not plan.too_long and not plan.no_time and share < START_UP_SHARE
        print(
            f"| {compress} times | {max(took_s.values()):.0f} s | {sum(took_s.values()):.0f} s | "
            f"{len(plan.calls)} | {share:.1%} | {'yes' if fits else 'no'} |"
        )


def main() -> int:
    """Make the runs of one call; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="replay.campaign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # --compress is a run's
    )
    parser.add_argument("out", type=Path, help="folder of results")
    parser.add_argument("runs", type=Path, help="file with the options of a run on each line")
    parser.add_argument(
        "--budget-s", type=float, required=True, help="what this call and later ones may take"
    )
    parser.add_argument("--call-s", type=float, default=580.0, help="what one call may take")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--compressions", action="store_true")
    options, common = parser.parse_known_args()
    began_s = time.monotonic() - (time.time() - float(os.environ.get("REPLAY_BEGAN_S", time.time())))
    try:
        runs = read_runs(options.runs, common)
        if options.compressions:
            compressions(list(runs.values()), call_s=options.call_s, budget_s=options.budget_s)
            return 0
        campaign = Campaign(options, runs, began_s)
        if options.plan:
            campaign.show(campaign.packed())
        refuse_unready(runs, options.out)
        if options.plan:
            return 0
    except (ConfigError, Unready, OSError) as exc:
        print(f"replay.campaign: {exc}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    return campaign.make()


if __name__ == "__main__":
    sys.exit(main())
