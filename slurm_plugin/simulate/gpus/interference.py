"""Slowdown of jobs that share a GPU under MPS: a small model, fitted to measured groups.

**A GPU's work is conserved.** The total SM activity of jobs that share a GPU (each job's activity alone over its
slowdown) depends only on the sum S of what they have alone, not on which jobs they are. It equals S while that fits, up
to a full GPU: 0.80 at a sum of 0.9, 0.97 at 1.75, 0.99 above 2. It is no less than the busiest job's activity alone.

    together = max(largest one alone, S / (1 + S ** q) ** (1 / q))

**Waiting.** MPS serves processes kernel by kernel: on a full GPU all of them complete about as many kernels per second,
whether these take five microseconds or five hundred. So a job waits longer the shorter its kernels are, and only for
what no longer fits into its pauses (its data loader, its Python):

    slowdown_i = max(1, b_i * f_i)
    f_i = 1 + delay * (TYPICAL_KERNEL_S / a_i) ** SHORTNESS * sum over neighbours j of b_j * I_j

**Time slicing.** Outside of MPS, contexts have a GPU one after the other, and a context without work gives up its time
slice. So contexts that need little get all of it, and the others share the rest equally, of the SLICED part of the time
that remains after context switches:

    slowdown_i = max(1, b_i / level),  with  sum over all j of min(b_j, level) = SLICED

The MPS server is one of these contexts; it needs the share u of the time in which not all of its clients pause.

A job of several GPUs (one process on each, with no MPS server in common) waits for its slowest half, and so for more of
its neighbours' time. If its replicas exchange their gradients one by one, each of these e per second waits on the GPU
that gathers them:

    slowdown_i = max(1, b_i * (1 + max(TURNS, BY_TURNS_S * e) * sum over others j with time slices of b_j
                                 + max(TURNS, BY_SERVER_S * e) * u))

It keeps its time slice while it waits, 1 / slowdown_i of the time, and the server's clients work in the remaining time.

b is the share of the time in which kernels run, I the share of the SMs that they keep busy during it (intensity), a
the duration of one kernel; the delay is chosen so that the work equals `together`. Fitted on groups of two to eight
trainings on H200s (`python bench/interference/fit.py`; docs/measurements/2026-11-activity.md has the errors on
workloads that were left out, and on replays, which were not used in any fit).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_plugin.core.config.compute import TURNS

CROWDING, SHORTNESS = 6.09, 0.81
"""q, and the exponent by which short kernels wait longer."""
TYPICAL_KERNEL_S = 26e-6
"""Median of 490 trainings: kernel time over the number of kernels in the profile."""
BY_SERVER_S, BY_TURNS_S = 2.6e-3, 0.9e-3
"""Wait of a gradient exchanged next to an MPS server with work, and next to one other job with time slices.

By the server: 2.4 ms for each of 411 a step (tests/gpu/results/h200x2/two_gpu_jobs_copies.json); 2.5, 2.8 and 2.8 in
steps of three replayed models. By turns: the middle of such steps without a server
(bench/simulation/replayed_groups.py).
"""
SLICED = 0.91
"""Share of its time that a GPU works while contexts are time-sliced on it (bench/interference/fit.py)."""
LONGEST_SLOWDOWN = 20.0
"""Upper limit, since no job starves forever: the largest measured slowdown was 17."""
MOST_WAIT = 1000.0
"""Upper end of the search for the delay."""
TOLERANCE = 1e-4
"""Lost work below this counts as none."""
MOST_INTENSE = 0.95
"""The largest measured value; the model does not apply beyond it."""
IDLE_W, BUSY_W = 88.0, 557.0
"""Power of an H200 that a process has open, and the addition at full SM activity: fitted, mean error 37 W."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load of a training on a GPU when it runs alone.

    Attributes:
        smact: Mean SM activity while it trains without pause (0 to 1).
        busy: Share of that time in which any of its kernels runs.
        duty: Share of its time in which it trains; in the rest it waits for data.
        kernel_s: How long one of its kernels takes, on average.
        sliced: Whether it runs outside of MPS though it has one GPU.
        halves: Whether it has several GPUs, whose halves wait for each other; it has no MPS server in common.
        exchanges_per_s: Gradients that this GPU gathers from its others and hands back, one by one, in a second alone.
        elsewhere: How many times slower it is on the slowest of its other GPUs.
        server: Key of its MPS server; jobs that take turns have none.
    """

    smact: float
    busy: float
    duty: float = 1.0
    kernel_s: float = TYPICAL_KERNEL_S
    sliced: bool = False
    halves: bool = False
    exchanges_per_s: float = 0.0
    elsewhere: float = 1.0
    server: str = ""

    @property
    def turns(self) -> bool:
        """Return whether it is time-sliced with its neighbours."""
        return self.sliced or self.halves

    @property
    def served(self) -> bool:
        """Return whether it has work for an MPS server."""
        return not self.turns and self.busy * self.duty > 0.0

    @property
    def mean_smact(self) -> float:
        """Return the activity that a monitor measures when it runs alone."""
        return self.smact * self.duty

    @property
    def intensity(self) -> float:
        """Return the share of the SMs that its kernels keep busy while they run."""
        return min(MOST_INTENSE, self.smact / max(self.busy, 0.02))


def slowdowns(loads: Sequence[Load]) -> list[float]:
    """Return the factor by which each job's time grows while these jobs share a GPU."""
    servers = {load.server for load in loads if load.served}
    if len(servers) > 1 or any(load.turns for load in loads):
        return _with_turns(loads)
    return _under_mps(loads)


def _with_turns(loads: Sequence[Load]) -> list[float]:
    """Return the same factors if some contexts are time-sliced: those under MPS get the time of their server."""
    busy = [load.busy * load.duty for load in loads]
    rest = [k for k, load in enumerate(loads) if not load.turns]
    wide = [k for k, load in enumerate(loads) if load.halves]
    alike = [k for k, load in enumerate(loads) if load.turns and not load.halves]
    servers: dict[str, list[int]] = {loads[k].server: [] for k in rest if loads[k].served}
    for k in rest:
        # A job without work slows no other job: any server will do.
        servers.setdefault(loads[k].server if loads[k].served else next(iter(servers), ""), []).append(k)
    served = [1.0 - math.prod(1.0 - busy[k] for k in members) for members in servers.values()]
    found = [1.0] * len(loads)
    for k in wide:
        found[k] = _of_halves(loads[k], sum(busy[j] for j in (*wide, *alike) if j != k), sum(served))
    fixed = [loads[k].duty / max(found[k], loads[k].elsewhere) for k in wide]
    level = 1.0
    if (alike and len(loads) > 1) or len(servers) > 1:
        level = fair_level([*(busy[k] for k in alike), *served, *fixed], SLICED)
        for k in alike:
            found[k] = max(1.0, busy[k] / level)
    taken = [min(one, level) for one in served]
    for number, members in enumerate(servers.values()):
        left = (SLICED if len(servers) > 1 else 1.0) - sum(fixed) - sum(busy[k] / found[k] for k in alike)
        left -= sum(taken[:number]) + sum(taken[number + 1 :])
        left = max(left, 1.0 / LONGEST_SLOWDOWN)
        for k, factor in zip(members, _under_mps([loads[k] for k in members], left), strict=True):
            found[k] = factor
    return found


def _of_halves(load: Load, others: float, served: float) -> float:
    """Return the slowdown of a job with several GPUs.

    Args:
        load: Its load alone.
        others: Share of the time in which kernels of other time-sliced jobs run, summed over these jobs.
        served: Share of the time in which the MPS server has work.
    """
    by_turns = max(TURNS, BY_TURNS_S * load.exchanges_per_s)
    by_server = max(TURNS, BY_SERVER_S * load.exchanges_per_s)
    return max(1.0, load.duty * (1.0 + by_turns * others + by_server * served))


def fair_level(demands: Sequence[float], capacity: float) -> float:
    """Return the most that each may have so that all have `capacity` together; 1 if there is enough (max-min fairness).

    Args:
        demands: What each requests, 0 to 1.
        capacity: What is available.

    >>> fair_level([0.2, 1.0, 1.0], 0.9), fair_level([0.2, 0.3], 0.9)
    (0.35, 1.0)
    """
    left = capacity
    for k, one in enumerate(sorted(demands)):
        level = left / (len(demands) - k)
        if one >= level:
            return level
        left -= one
    return 1.0


def _under_mps(loads: Sequence[Load], left: float = 1.0) -> list[float]:
    """Return the slowdowns of the clients of an MPS server that has the GPU for a share of the time."""
    wanted = [load.busy * load.duty / left for load in loads]
    busy = [min(1.0, b) for b in wanted]
    alone = [max(1.0, b) for b in wanted]
    work = [b * load.intensity for b, load in zip(busy, loads, strict=True)]
    total = sum(work)
    reached = reach(total, max(work, default=0.0))
    if total - reached < TOLERANCE:
        return alone
    behind = [
        (TYPICAL_KERNEL_S / load.kernel_s) ** SHORTNESS * (total - own)
        for load, own in zip(loads, work, strict=True)
    ]

    def slowed(delay: float) -> list[float]:
        return [
            min(LONGEST_SLOWDOWN, max(1.0, b * (1.0 + delay * w))) for b, w in zip(busy, behind, strict=True)
        ]

    low, high = 0.0, MOST_WAIT
    while high - low > 1e-3 * high:
        delay = (low + high) / 2.0
        done = sum(own / factor for own, factor in zip(work, slowed(delay), strict=True))
        low, high = (delay, high) if done > reached else (low, delay)
    return [once * factor for once, factor in zip(alone, slowed(high), strict=True)]


def reach(total: float, largest: float) -> float:
    """Return the SM activity that a GPU reaches.

    Args:
        total: Sum of its jobs' activities alone.
        largest: Activity of the busiest of them alone.
    """
    return max(largest, total / (1.0 + total**CROWDING) ** (1.0 / CROWDING)) if total else 0.0


def together(loads: Sequence[Load], factors: Sequence[float]) -> float:
    """Return the GPU's SM activity while these jobs share it.

    Args:
        loads: Load of each job on a dedicated GPU.
        factors: Slowdown of each job here; 1 is not slower.
    """
    return min(1.0, sum(load.mean_smact / factor for load, factor in zip(loads, factors, strict=True)))


def power_w(smact: float) -> float:
    """Return the power of a GPU at this activity."""
    return IDLE_W + BUSY_W * smact
