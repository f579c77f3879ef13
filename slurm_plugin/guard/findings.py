"""What is wrong on the GPUs of a node in one sample: a pure function of readings, ledger and configuration.

Only jobs of partitions that rad.toml names are judged, and a process that belongs to no job is only named. What an
honest job cannot help never counts: a process older than its job's reservation, memory that the driver does not tell,
an MPS server of ours, a difference below TOLERANCE_BYTES. An H200 (driver 580.159) showed 1,940 MiB for a client that a
cap of 2,048 MiB had stopped, showed an allocation 0.6 ms after it, and counts memory opened by IPC with its exporter
alone, so a client that its cap stopped never looks like one that went past it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurm_plugin.core.config import Config, PartitionConfig
from slurm_plugin.core.gpu import GpuProcess, GpuReading
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.core.node_records import Reservation
from slurm_plugin.core.process import Process
from slurm_plugin.core.room import memory_use
from slurm_plugin.core.units import MIB
from slurm_plugin.guard.finding import Finding, Kind, Response
from slurm_plugin.guard.unmanaged import unmanaged_on
from slurm_plugin.monitor.attribution import Traced

TOLERANCE_BYTES = 512 * MIB
"""What a job may hold beyond its booking: one more CUDA context (532 MiB on an H200) is no theft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mine:
    """What of MPS is ours on this node.

    Attributes:
        servers: Our MPS servers and daemons; they hold a little memory for all.
        clients: (GPU, job id) of each job that was given a server.
        capped: Those of them that were given a memory cap.
    """

    servers: Collection[Process] = ()
    clients: Collection[tuple[str, int]] = ()
    capped: Collection[tuple[str, int]] = ()


def findings(
    readings: Sequence[GpuReading],
    ledger: Ledger,
    traced: Mapping[int, Traced],
    config: Config,
    mine: Mine,
    *,
    ages_s: Mapping[Process, float],
    now_s: float,
    leaving: Collection[tuple[int, int]] = (),
    owed: Mapping[str, int] | None = None,
) -> tuple[Finding, ...]:
    """Return everything that is wrong in one sample.

    Args:
        readings: All GPUs, with their processes.
        ledger: Who holds what, read after the GPUs were.
        traced: Whose each GPU process is, by pid.
        config: rad.toml.
        mine: Our MPS servers and their jobs.
        ages_s: Seconds since each process started.
        now_s: Seconds since boot.
        leaving: (job id, restart) of the runs that were stopped a moment ago.
        owed: What jobs that Slurm let in and that had to be put back lack of each GPU, in bytes by UUID.
    """
    found: list[Finding] = []
    for reading in readings:
        if reading.healthy and not reading.mig:
            found += _on_gpu(
                reading,
                ledger,
                traced,
                config,
                mine,
                ages_s=ages_s,
                now_s=now_s,
                leaving=leaving,
                owed_bytes=(owed or {}).get(reading.uuid, 0),
            )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Share:
    """What one job holds on one GPU."""

    held: Reservation
    settings: PartitionConfig
    rows: tuple[tuple[GpuProcess, Process], ...]

    @property
    def run(self) -> tuple[int, int]:
        return self.held.job_id, self.held.restart

    @property
    def total_bytes(self) -> int:
        return sum(row.memory_bytes or 0 for row, _ in self.rows)

    @property
    def excess_bytes(self) -> int:
        return max(0, self.total_bytes - self.held.booked_bytes)


def _on_gpu(
    reading: GpuReading,
    ledger: Ledger,
    traced: Mapping[int, Traced],
    config: Config,
    mine: Mine,
    *,
    ages_s: Mapping[Process, float],
    now_s: float,
    leaving: Collection[tuple[int, int]],
    owed_bytes: int,
) -> Iterator[Finding]:
    rows: dict[int, list[tuple[GpuProcess, Process]]] = {}
    unmanaged: list[tuple[GpuProcess, Traced]] = []
    for row in reading.processes:
        one = traced.get(row.pid)
        if one is None or one.process in mine.servers:
            continue
        held = None if one.job_id is None else ledger.of_job(one.job_id)
        if held is None:
            unmanaged.append((row, one))
        elif ages_s.get(one.process, 0.0) <= now_s - held.created_s + _SLACK_S:
            rows.setdefault(held.job_id, []).append((row, one.process))
    shares = []
    for held in ledger.reservations:
        settings = config.partitions.get(held.partition) if held.managed else None
        if held.job_id in rows and settings is not None:
            shares.append(_Share(held, settings, tuple(rows[held.job_id])))
    yield from _memory(reading, ledger, shares, traced, mine, leaving, owed_bytes)
    for share in shares:
        others = [one for one in ledger.on(reading.uuid) if one.job_id != share.held.job_id]
        if reading.uuid not in share.held.gpus and (others or share.total_bytes > TOLERANCE_BYTES):
            yield _finding("foreign-gpu", reading, share, 0, share.rows, share.settings.on_overrun)
        past = tuple(row for row in share.rows if row[0].mps is False)
        if past and (reading.uuid, share.held.job_id) in mine.clients:
            limit = share.held.limit_bytes
            yield _finding("outside-mps", reading, share, limit, past, share.settings.on_outside_mps)
    yield from unmanaged_on(reading, ledger, unmanaged)


_SLACK_S = 5.0
"""Between a reservation and the first process of its job clocks may be set."""


def _memory(
    reading: GpuReading,
    ledger: Ledger,
    shares: Sequence[_Share],
    traced: Mapping[int, Traced],
    mine: Mine,
    leaving: Collection[tuple[int, int]],
    owed_bytes: int,
) -> Iterator[Finding]:
    """Tell of jobs with more than they may have.

    Nobody passes a cap that MPS holds but on purpose. Up to its cap, and without one (no MPS here), a job may honestly
    need more than anybody thought. It is stopped only where neighbours could not get what they booked, and then the
    one furthest above its own estimate; beyond its cap, also where somebody whom Slurm let in waits for what he booked.
    Who keeps to his booking never is. Nor is anybody for what those hold, or
    booked, who are leaving already or are to go for having passed such a cap.
    """
    own = [share for share in shares if share.held.kind == "shared" and reading.uuid in share.held.gpus]
    beyond = [share for share in own if share.total_bytes > share.held.limit_bytes + TOLERANCE_BYTES]
    forced = [share for share in beyond if (reading.uuid, share.held.job_id) in mine.capped]
    thieves = [share for share in forced if share.settings.on_overrun != "warn"]
    goes = [share for share in own if share in thieves or share.run in leaving]
    owners = {pid: one.job_id for pid, one in traced.items() if one.job_id is not None}
    gone = {*leaving, *(share.run for share in thieves)}
    stays = [held for held in ledger.on(reading.uuid) if (held.job_id, held.restart) not in gone]
    free_bytes = reading.free_bytes + sum(share.total_bytes for share in goes)
    spare_bytes = free_bytes - memory_use(reading, stays, owners).untouched_bytes
    honest = [share for share in _above(own) if share not in forced and share not in goes]
    if spare_bytes >= 0:  # what is lent, up to a cap, newcomers wait for
        honest = [share for share in honest if share in beyond and spare_bytes < owed_bytes]
    worst = max(honest, key=_goes_first, default=None)
    for share in own:
        settings, held = share.settings, share.held
        again = share in goes and share.excess_bytes > 0
        if share in beyond:
            stops = share in forced or share is worst or again
            response: Response = settings.on_overrun if stops else "warn"
            yield _finding("memory", reading, share, held.limit_bytes, share.rows, response)
        elif share is worst or again:  # our estimate was wrong: such a job is never ended for good
            response = "warn" if settings.on_overrun == "warn" else "requeue"
            yield _finding("surprise", reading, share, held.booked_bytes, share.rows, response)


def _above(shares: Sequence[_Share]) -> list[_Share]:
    """Return those that hold more than they booked.

    What nobody can help is forgiven each user once on a GPU, not once for each of many small jobs.
    """
    excess_bytes: Counter[int] = Counter()
    for share in shares:
        excess_bytes[share.held.user_id] += share.excess_bytes
    return [
        share
        for share in shares
        if share.excess_bytes > 0 and excess_bytes[share.held.user_id] > TOLERANCE_BYTES
    ]


def _goes_first(share: _Share) -> tuple[bool, int]:
    """Order by who is furthest above his estimate; whom his partition would only warn makes room for nobody."""
    return share.settings.on_overrun != "warn", _above_estimate_bytes(share)


def _above_estimate_bytes(share: _Share) -> int:
    held = share.held
    expected_bytes = held.booked_bytes if held.estimate_bytes is None else held.estimate_bytes
    return share.total_bytes - min(expected_bytes, held.booked_bytes)


def _finding(
    kind: Kind,
    reading: GpuReading,
    share: _Share,
    limit_bytes: int,
    rows: tuple[tuple[GpuProcess, Process], ...],
    response: Response,
) -> Finding:
    return Finding(
        kind=kind,
        gpu=reading.uuid,
        job_id=share.held.job_id,
        user_id=share.held.user_id,
        restart=share.held.restart,
        held_bytes=sum(row.memory_bytes or 0 for row, _ in rows),
        limit_bytes=limit_bytes,
        free_bytes=reading.free_bytes,
        processes=tuple(process for _, process in rows),
        response=response,
    )
