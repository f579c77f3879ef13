"""How often does free placement send a job back to the queue? A node of Slurm seats and GPU rooms, simulated.

    python bench/put_backs.py [--jobs 20000]

Slurm's side is modelled (a queue in order of arrival with backfill; shards on the first seat with room, as 22.05
does, or on the least loaded one, as LL_SHARED_GRES does); the rooms are chosen by the real `choose_gpu` and booked in
the real `Ledger`.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
from dataclasses import dataclass, field

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.placement.choose import Pin, choose_gpu
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Demand, Reservation
from slurm_plugin.core.units import GIB

SHARDS = 40
DELAY_S = 10.0
WHOLE_SHARE = 0.2
"""One job in five wants a GPU of its own: the recovered, the unknown, the large."""
SETTINGS = PartitionConfig(collocate=True, shards_per_gpu=SHARDS, gpu_memory_mib=SHARDS << 10, margin_mib=0)


@dataclass(slots=True)
class Job:
    """One job; whole jobs ask for all shards of a GPU."""

    number: int
    arrival_s: float
    duration_s: float
    shards: int
    not_before_s: float = 0.0
    seat: int = -1

    @property
    def whole(self) -> bool:
        """Return whether it wants a GPU of its own."""
        return self.shards == SHARDS


@dataclass(slots=True)
class Tally:
    """What one run showed."""

    starts: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    put_backs: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    jobs_put_back: dict[bool, set[int]] = field(default_factory=lambda: {True: set(), False: set()})
    delay_s: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    crowded: int = 0
    needlessly_crowded: int = 0


def simulate(
    *, gpus: int, whole_share: float, load: float, spread: bool, pin: Pin, jobs: int, seed: int = 1
) -> Tally:
    """Run one node to the end of its jobs."""
    draw = random.Random(seed)
    readings = tuple(
        GpuReading(
            uuid=f"GPU-{index}",
            index=index,
            name="simulated",
            memory_total_bytes=SHARDS * GIB,
            memory_used_bytes=0,
            time_s=0.0,
        )
        for index in range(gpus)
    )
    room_bytes = {reading.uuid: reading.usable_bytes for reading in readings}
    waiting: list[Job] = []
    running: list[tuple[float, int, Job]] = []
    seats = [0] * gpus
    ledger, tally, now_s = Ledger(), Tally(), 0.0
    arrivals = _arrivals(draw, gpus=gpus, whole_share=whole_share, load=load, jobs=jobs)
    first_tries: dict[int, float] = {}
    while arrivals or waiting or running:
        times = [running[0][0]] if running else []
        times += [arrivals[-1].arrival_s] if arrivals else []
        times += [job.not_before_s for job in waiting if job.not_before_s > now_s]
        now_s = min(times)
        while arrivals and arrivals[-1].arrival_s <= now_s:
            waiting.append(arrivals.pop())
        while running and running[0][0] <= now_s:
            over = heapq.heappop(running)[2]
            seats[over.seat] -= over.shards
            ledger = ledger.release(over.number, restart=0)
        for job in list(waiting):
            seat = _seat(seats, job.shards, spread)
            if job.not_before_s > now_s or seat is None:
                continue
            demand = Demand(
                job_id=job.number,
                user_id=1,
                kind="whole" if job.whole else "shared",
                gpus=1,
                booked_bytes=None if job.whole else job.shards * GIB,
                seats=(seat,),
            )
            first_tries.setdefault(job.number, now_s)
            placement = choose_gpu(readings, ledger, demand, SETTINGS, pin=pin, now_s=now_s)
            if not placement.gpus:
                tally.put_backs[job.whole] += 1
                tally.jobs_put_back[job.whole].add(job.number)
                job.not_before_s = now_s + DELAY_S
                continue
            neighbours = len(ledger.on(placement.gpus[0]))
            idle = sum(1 for reading in readings if not ledger.on(reading.uuid))
            tally.crowded += bool(neighbours)
            tally.needlessly_crowded += bool(neighbours and idle)
            held = Reservation(
                job_id=job.number,
                user_id=1,
                kind=demand.kind,
                gpus=placement.gpus,
                seats=(seat,),
                booked_bytes=job.shards * GIB,
                created_s=now_s,
            )
            try:
                ledger = ledger.reserve(held, room_bytes)
            except LedgerError as exc:
                raise SystemExit(f"choose_gpu and Ledger disagree: {exc}") from exc
            job.seat = seat
            seats[seat] += job.shards
            tally.starts[job.whole] += 1
            tally.delay_s[job.whole] += now_s - first_tries[job.number]
            waiting.remove(job)
            heapq.heappush(running, (now_s + job.duration_s, job.number, job))
    return tally


def _arrivals(draw: random.Random, *, gpus: int, whole_share: float, load: float, jobs: int) -> list[Job]:
    """Return jobs, last first: lognormal durations about 20 min, shared needs of 2 to 20 GiB, Poisson arrivals."""
    found, now_s = [], 0.0
    mean_shards = whole_share * SHARDS + (1 - whole_share) * 11
    mean_duration_s = 1200 * 1.65  # mean of the lognormal below: exp(1/2) times its median
    rate = load * gpus * SHARDS / (mean_shards * mean_duration_s)
    for number in range(jobs):
        now_s += draw.expovariate(rate)
        whole = draw.random() < whole_share
        shards = SHARDS if whole else draw.randint(2, 20)
        found.append(
            Job(number=number, arrival_s=now_s, duration_s=draw.lognormvariate(7.09, 1.0), shards=shards)
        )
    return found[::-1]


def _seat(seats: list[int], shards: int, spread: bool) -> int | None:
    """Return the seat that Slurm books; 22.05 takes the first with room, LL_SHARED_GRES the least loaded."""
    fitting = [index for index, used in enumerate(seats) if used + shards <= SHARDS]
    if not fitting:
        return None
    return min(fitting, key=lambda index: (seats[index], index)) if spread else fitting[0]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    jobs = parser.parse_args().jobs
    print(
        "| GPUs | seats | load | pin | whole put back | mean delay | shared put back | crowded though a GPU idles |"
    )
    print("|---|---|---|---|---|---|---|---|")
    pins: tuple[Pin, ...] = ("bound", "free")
    for gpus, spread, load, pin in itertools.product((4, 8), (False, True), (0.6, 0.9), pins):
        tally = simulate(gpus=gpus, whole_share=WHOLE_SHARE, load=load, spread=spread, pin=pin, jobs=jobs)
        whole, shared = tally.starts[True], tally.starts[False]
        print(
            f"| {gpus} | {'least loaded' if spread else 'first with room'} | {load:.0%} | {pin} "
            f"| {len(tally.jobs_put_back[True]) / whole:.2%} | {tally.delay_s[True] / whole:.0f} s "
            f"| {len(tally.jobs_put_back[False]) / shared:.2%} | {tally.needlessly_crowded / shared:.1%} |"
        )


if __name__ == "__main__":
    main()
