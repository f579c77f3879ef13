"""Feed broken input to a reader of the project, and check that it neither crashes, hangs nor returns nonsense.

    python bench/faults/fuzz.py TARGET --inputs 1000000 --seed 1 [--workers 2]

Targets: wire (lines on radd's socket), directives (#RAD lines and comments), bookings, ledger (ledger files and job
copies), slurm (what Slurm's programs and environment say), tables, lines and notes (what users write in bytes, next to
others' records), nvml, dcgm, summaries (model texts). Each input is a mutation of a valid one. It must yield an answer
that makes sense, or one of the documented errors in one line, within two seconds of processor time.

Time limits are of processor time, so that a stopped process or a busy machine is no fault. A fault's seed is printed;
`--only SEED/NUMBER` runs that input alone and shows it.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import random
import resource
import signal
import time
from functools import cache, partial

import fuzz_bytes
import fuzz_summaries
import fuzz_targets
from fuzz_targets import FuzzTarget

Outcomes = collections.Counter[str]
BATCH = 500
SLOW_S = 2.0
HANG_S = 10
MEMORY_BYTES = 1 << 30
"""What a worker may take in all; an input that makes it take more is a fault, not an end of the machine."""

TARGETS = {
    **fuzz_targets.TARGETS,
    **fuzz_bytes.TARGETS,
    "summaries": lambda: FuzzTarget(fuzz_summaries.mutate, fuzz_summaries.judge),
}


@cache
def _target(name: str) -> FuzzTarget:
    return TARGETS[name]()


def work(name: str, task: tuple[int, int]) -> tuple[float, Outcomes]:
    """Try a batch, each input with a seed of its own; return processor time and outcomes."""
    seed, count = task
    begin = time.process_time()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGPROF, _hung)
    outcomes = Outcomes()
    for number in range(count):
        try:
            outcomes[one(name, f"{seed}/{number}")] += 1
        except Exception as exc:  # noqa: BLE001 - every kind of fault is what is looked for
            outcomes[f"FAULT {type(exc).__name__}"] += 1
            print(f"FAULT seed {seed}/{number}: {exc!r:.200}", flush=True)
    return time.process_time() - begin, outcomes


def one(name: str, seed: str) -> str:
    """Try one input; return what came of it.

    Raises:
        Exception: A fault.
    """
    target = _target(name)
    rng = random.Random(seed)
    made = target.make(rng)
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    begin = time.process_time()
    try:
        outcome = target.judge(made, rng)
        assert time.process_time() - begin < SLOW_S, "slow"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return outcome


def _hung(*_: object) -> None:
    raise TimeoutError(f"no answer in {HANG_S} s")


def main() -> None:
    """Run and print how often each outcome came."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", metavar="SEED/NUMBER", help="one input alone, as a fault names it")
    options = parser.parse_args()
    if options.only:
        print(repr(_target(options.target).make(random.Random(options.only))))
        print(one(options.target, options.only))
        return
    tasks = [
        (options.seed * 1_000_003 + at, min(BATCH, options.inputs - at * BATCH))
        for at in range(-(-options.inputs // BATCH))
    ]
    total, spent_s = Outcomes(), 0.0
    with multiprocessing.Pool(options.workers) as pool:
        for seconds, outcomes in pool.imap_unordered(partial(work, options.target), tasks):
            total.update(outcomes)
            spent_s += seconds
    for outcome, number in total.most_common():
        print(f"{number:>9} {outcome}")
    print(f"{total.total():>9} inputs in {spent_s:.0f} s of processor time")
    raise SystemExit(any(outcome.startswith("FAULT") for outcome in total))


if __name__ == "__main__":
    main()
