"""Turn a trace into jobs: submission time, number of steps, pace of the loader, requested limit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from replay.users import USERS
from slurm_plugin.core.units import to_mib_up
from slurm_plugin.simulate.jobs import LEAST_LIMIT_S, LIMIT_FACTOR
from slurm_plugin.simulate.traces.job import compressed
from slurm_plugin.simulate.traces.read import read_trace
from slurm_plugin.simulate.traces.users import dealt
from slurm_plugin.simulate.traces.workloads import load_of, measured

UNKNOWN_STEP_S = 0.04
"""Of a workload that was never measured: the median of those that were. Only a job that does not train may take it."""
START_UP_S = 20.0
"""What a limit allows for start-up, which is not compressed."""
LEAST_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One job of a replay.

    Attributes:
        name: Its name in Slurm, which no other job has.
        workload: What it trains.
        gpus: GPUs on one node.
        submit_s: When it is submitted, from the replay's beginning.
        alone_s: How long its steps take with a GPU to itself.
        steps: The same in every run.
        period_s: From step to step alone: its loader makes a batch each period.
        step_s: What of that it trains.
        smact: SM activity while it trains.
        busy: Share of that time in which kernels run.
        kernel_s: How long one of them takes, on average.
        exchanges_per_s: Gradients that its GPUs hand over meanwhile, one by one, each second.
        memory_mib: Peak on each GPU, as the trace says.
        limit_min: What its user requests as --time, in Slurm's minutes.
        measured: Whether its step was measured, on so many GPUs; else it is not known how long its steps would take.
        user: Its user, from 1.
        faults: Whether it does not train but writes to an impossible address, which ends all jobs on its MPS server.
    """

    name: str
    workload: str
    gpus: int
    submit_s: float
    alone_s: float
    steps: int
    period_s: float
    step_s: float
    smact: float
    busy: float
    kernel_s: float
    exchanges_per_s: float
    memory_mib: int
    limit_min: int
    measured: bool = True
    user: int = 1
    faults: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def unmeasured(jobs: Iterable[Planned]) -> tuple[str, ...]:
    """Return what keeps a trace from being trained: workloads whose steps were not measured on so many GPUs."""
    return tuple(sorted({f"{job.workload} on {job.gpus} GPU(s)" for job in jobs if not job.measured}))


def plan(
    trace: Path,
    *,
    compress: float,
    gpus: int,
    first: int | None = None,
    one_by_one: bool = True,
    users: int | None = 1,
    seed: int = 0,
    faulty: int | None = None,
) -> tuple[Planned, ...]:
    """Return the jobs of a trace that so many GPUs can run, or the first of them.

    A loader is as slow, relative to the training, as the trace has it: the job waits for data the same share of time.

    Args:
        trace: The file.
        compress: How many times faster than the trace.
        gpus: GPUs of the machine; jobs that want more are left out.
        first: How many of its jobs; None: all.
        one_by_one: Whether GPUs of one job hand each gradient over by itself.
        users: To how many users the jobs are dealt out; None: those that the trace names, else as users.py says.
        seed: Of the deal.
        faulty: Every so many'th job of the first user that requests one GPU faults; None: no job does.

    Raises:
        ConfigError: The trace cannot be read.
    """
    known = measured()
    original = read_trace(trace)
    user_of = dealt(original, users, seed, unnamed=USERS).of
    jobs: list[Planned] = []
    of_first = 0
    pairs = zip(original.jobs, compressed(original, compress).jobs, strict=True)
    for before, job in [pair for pair in pairs if pair[0].gpus <= gpus][:first]:
        load = load_of(before, known)
        workload = known.get(job.workload)
        measured_so = workload is not None and workload.gpus == job.gpus
        step_s = workload.step_s if workload else UNKNOWN_STEP_S
        period_s = step_s / load.duty
        limit_s = job.limit_s or max(LEAST_LIMIT_S / compress, LIMIT_FACTOR * job.duration_s)
        of_first += (may_fault := user_of[job.number] == 1 and job.gpus == 1)
        steps = max(LEAST_STEPS, round(job.duration_s / period_s))
        jobs.append(
            Planned(
                name=f"{job.number:03d}-{job.workload}",
                workload=job.workload,
                gpus=job.gpus,
                submit_s=job.submit_s,
                alone_s=steps * period_s,
                steps=steps,
                period_s=period_s,
                step_s=step_s,
                smact=load.smact,
                busy=load.busy,
                kernel_s=load.kernel_s,
                exchanges_per_s=load.exchanges_per_s if one_by_one else 0.0,
                memory_mib=to_mib_up(job.memory_bytes or 0),
                limit_min=math.ceil((limit_s + START_UP_S) / 60),
                measured=measured_so,
                user=user_of[job.number],
                faults=bool(faulty) and may_fault and of_first % (faulty or 1) == 0,
            )
        )
    return tuple(jobs)
