"""Compare by simulation one MPS server for a user, an account or a GPU, with 2 to 100 users.

    PYTHONPATH=bench:. python bench/simulation/many_users.py TRACE ...

The traces, and four drawn from their workloads, on two GPUs, relative to whole GPUs; memory as measured on an H200. The
mean over the traces and SEEDS deals. With --compute-overcommit the first table compares these values in the place of
servers, each user with a server of its own. A second table has one job of one user next to ten of each other user,
where a GPU has one server: how much slower the jobs of either are than alone.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from replay.as_measured import rewritten

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.records.submission import ServerScope
from slurm_plugin.simulate.engine import Engine
from slurm_plugin.simulate.metrics import metrics
from slurm_plugin.simulate.question import SimulationQuestion
from slurm_plugin.simulate.result import Result
from slurm_plugin.simulate.scenario import scenario

USERS = (2, 6, 20, 100)
SCOPES: tuple[ServerScope, ...] = ("user", "account", "gpu")
OWN_OR_SHARED: tuple[ServerScope, ...] = ("user", "gpu")
SEEDS = (0, 1, 2)
DRAWN = (1, 2, 3, 4)
DRAWN_JOBS, MEAN_GAP_S, GAPS = 80, 240.0, (0.1, 0.1, 2.8)
"""Of drawn traces: jobs, mean time between two, and its factors, which make bursts."""
MANY = 10
"""Jobs of a user with many, next to a user with one."""
FIGURES = ("makespan_s", "mean_completion_s", "p95_slowdown")

Rows = list[dict[str, str]]


def write_rows(rows: Rows, path: Path) -> Path:
    """Write a trace and return its file."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    return path


def drawn(seed: int, known: Rows) -> Rows:
    """Return the rows of a trace of workloads that others have, in bursts."""
    draw, at_s, found = random.Random(seed), 0.0, []
    for _ in range(DRAWN_JOBS):
        found.append(draw.choice(known) | {"arrival_s": str(round(at_s))})
        at_s += draw.expovariate(1 / MEAN_GAP_S) * draw.choice(GAPS)
    return found


def uneven(rows: Rows) -> Rows:
    """Return a trace whose users have MANY jobs and one job by turns, in order of submission."""
    return [
        row | {"user": f"{'one' if k % (MANY + 1) == MANY else 'many'}{k // (MANY + 1)}"}
        for k, row in enumerate(rows)
    ]


def run(question: SimulationQuestion) -> Result:
    """Return a simulation's result."""
    found = scenario(question)
    return Engine(found.cluster, found.jobs).run()


def slowdowns_of(result: Result, kind: str) -> Iterator[float]:
    """Yield the slowdowns of the jobs of users whose names begin so."""
    for job in result.jobs:
        if job.trace.user.startswith(kind):
            yield job.ran_s / (job.start_up_s + job.trace.duration_s)


def by_users(
    questions: Sequence[SimulationQuestion], numbers: Sequence[int], key: str, values: Sequence[object]
) -> None:
    """Print the table by number of users and value of a setting."""
    print(f"| users | `{key}` | makespan | mean completion | P95 slowdown |\n|---|---|---|---|---|")
    whole = [metrics(run(replace(question, baseline="whole"))) for question in questions]
    for users in numbers:
        for value in values:
            rows = []
            for question, alone in zip(questions, whole, strict=True):
                settings = replace(question.settings, **{key: value})  # type: ignore[arg-type]
                for seed in SEEDS:
                    found = metrics(run(replace(question, settings=settings, users=users, seed=seed)))
                    rows.append(
                        [found[name] / (1 if "slowdown" in name else alone[name]) for name in FIGURES]
                    )
            means = [statistics.fmean(column) for column in zip(*rows, strict=True)]
            print(f"| {users} | {value} | " + " | ".join(f"{mean:.2f}" for mean in means) + " |", flush=True)


def by_jobs(questions: Sequence[SimulationQuestion]) -> None:
    """Print how slow jobs of users with one and with MANY jobs are."""
    print(f"\n| `mps_server` | jobs of users with one job | with {MANY} jobs |\n|---|---|---|")
    for scope in OWN_OR_SHARED:
        results = [
            run(replace(question, settings=replace(question.settings, mps_server=scope)))
            for question in questions
        ]
        cells = (
            statistics.fmean(slow for result in results for slow in slowdowns_of(result, kind))
            for kind in ("one", "many")
        )
        print(f"| {scope} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--gpu-memory-mib", type=int, default=143_000)
    parser.add_argument("--compute-overcommit", type=float, nargs="+")
    parser.add_argument("--users", type=int, nargs="+", default=USERS)
    options = parser.parse_args()
    given = [rewritten(list(csv.DictReader(trace.read_text().splitlines()))) for trace in options.traces]
    known = [row for rows in given for row in rows]
    traces = [*given, *(drawn(seed, known) for seed in DRAWN)]
    with tempfile.TemporaryDirectory() as folder:

        def question_of(name: str, rows: Rows) -> SimulationQuestion:
            return SimulationQuestion(
                trace=write_rows(rows, Path(folder, f"{name}.csv")),
                nodes=1,
                gpus_per_node=options.gpus,
                gpu_memory_mib=options.gpu_memory_mib,
                settings=PartitionConfig(share_multi_gpu=True),
                pin="bound",
                min_age_reserve_s=14_400.0,
            )

        even = [question_of(f"even{k}", rows) for k, rows in enumerate(traces)]
        if options.compute_overcommit:
            by_users(even, options.users, "compute_overcommit", options.compute_overcommit)
            return
        by_users(even, options.users, "mps_server", SCOPES)
        by_jobs([question_of(f"uneven{k}", uneven(rows)) for k, rows in enumerate(traces)])


if __name__ == "__main__":
    main()
